"""Counters, errors and ratios: what is worked out is what is shown."""

from math import isclose

import numpy as np
import pytest

from calc.answer import answer
from calc.formulas import FORMULAS
from calc.scenario import Scenario
from calc.schedule import Scheduling, schedule
from calc.schedule_examples import Example, example_requests, link_of, step_of
from calc.worked.measured import worked_errors, worked_rate, worked_schedule, worked_share
from presets.resolve import resolve


def comes_out(line):
    return isclose(float(FORMULAS[line.formula].value(line.inputs)), line.result, rel_tol=1e-9)


@pytest.mark.parametrize("scheduling", [Scheduling.STATIC, Scheduling.CONTINUOUS, Scheduling.DISAGGREGATED])
def test_a_schedulers_counters_come_out_again(scheduling):
    result = answer(resolve(Scenario()))
    step = step_of(result)
    requests = example_requests(Example.FIRST_LESSON, result, step, slots=4, rounds=2, seed=0)
    ran = schedule(scheduling, requests, step, slots=4, token_budget=2048, link=link_of(result))
    use, wait, first = worked_schedule(ran)
    assert all(map(comes_out, (use, wait, first)))
    assert (use.result, wait.result) == (ran.slot_use, ran.mean_wait_s)
    assert first.result == pytest.approx(float(np.mean(ran.result.ttft_s)))


def test_errors_name_the_furthest_point_first():
    worst, mean, share = worked_errors([(11, 10, "near"), (30, 20, "far"), (9, 10, "near")], inside=2)
    assert worst.about.endswith("far")
    assert worst.result == pytest.approx(0.5)
    assert mean.result == pytest.approx((0.1 + 0.5 + 0.1) / 3)
    assert share.result == pytest.approx(2 / 3)
    assert all(map(comes_out, (worst, mean, share)))


def test_rates_and_shares():
    assert comes_out(worked_rate("a call", 2e9, 0.5))
    (line,) = worked_share("over its peak", 271.2, 312)
    assert comes_out(line)
    assert worked_share("nothing was inside", 0, 10) == ()
