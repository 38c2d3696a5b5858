"""Speculation curves against the worked cases."""

import numpy as np
import pytest

from calc.answer import answer
from calc.scenario import Scenario
from calc.speculation_curves import (
    BATCHES,
    draft_curve,
    sampled_tokens_per_pass,
    simulated_speedups,
    speedup_by_batch,
    speedup_by_length,
)
from presets.resolve import resolve


def test_the_worked_draft():
    # worked cases spec-tokens and spec-speedup
    curve = draft_curve(acceptance=0.8, draft_cost=0.05)
    assert curve.tokens_per_pass[4] == pytest.approx(3.3616)
    assert curve.speedup[4] == pytest.approx(2.801, rel=1e-3)
    assert curve.speedup[0] == 1.0
    assert curve.speedup[curve.best] == max(curve.speedup)


@pytest.mark.parametrize("seed", [1, 5])
def test_10_000_sampled_passes_lie_within_three_standard_errors(seed):
    sampled = sampled_tokens_per_pass(acceptance=0.8, seed=seed)
    assert sampled[4].formula == pytest.approx(3.3616)  # worked case spec-tokens
    assert all(one.errors_apart <= 3 for one in sampled)
    assert 0.01 < sampled[4].standard_error < 0.02
    assert sampled[0].mean == 1.0


def test_the_simulator_serves_as_fast_as_the_formula_says():
    # the bar: within 3% of E[tokens] T(B) / (T(B (k+1)) + k T_draft(B)); 5% here, because the simulator's clock is a table
    result = answer(resolve(Scenario()))
    batches = (1, 16, 128)
    found = simulated_speedups(result, acceptance=0.8, drafts=4, draft_cost=0.05, batches=batches)
    formula = speedup_by_batch(result, acceptance=0.8, drafts=4, draft_cost=0.05)
    expected = [formula[BATCHES.index(batch)] for batch in batches]
    assert found[:2] == pytest.approx(expected[:2], rel=0.03)
    assert found[2] == pytest.approx(expected[2], rel=0.05)


def test_length_and_batch_curves_meet():
    result = answer(resolve(Scenario()))
    by_length = speedup_by_length(result, acceptance=0.8, draft_cost=0.05, batch=64)
    by_batch = speedup_by_batch(result, acceptance=0.8, drafts=6, draft_cost=0.05)
    assert by_length[6] == pytest.approx(by_batch[BATCHES.index(64)])
    assert by_length[0] == 1.0
    free = draft_curve(acceptance=0.8, draft_cost=0.05)
    assert max(by_length) <= max(free.speedup)


def test_one_sequence_gains_what_free_checking_gains_and_a_crowd_does_not():
    result = answer(
        resolve(
            Scenario(model="textbook-13b", gpu="a100-textbook", kv_bytes_per_gpu=50e9, fidelity="textbook")
        )
    )
    gain = speedup_by_batch(result, acceptance=0.8, drafts=4, draft_cost=0.05)
    assert gain[0] == pytest.approx(2.801, rel=1e-3)
    assert np.all(np.diff(gain) <= 1e-9)
    # batch 512: 2·13e9·512·5/312e12 = 213 ms to check, (26e9 + 512·640·819200)/2.04e12 = 144 ms a plain step
    expected = 3.3616 * 144.33 / (213.33 + 4 * 0.05 * 144.33)
    assert gain[BATCHES.index(512)] == pytest.approx(expected, rel=2e-3)
    assert np.all(np.asarray(gain) > 0)
