"""Generated traffic has the rate that was asked for, and a run agrees with what must hold of any queue."""

import numpy as np
import pytest

from calc.answer import answer
from calc.errors import InputError
from calc.scenario import Scenario, Traffic
from calc.traffic import BURST_S, SHORT_DAY_S, Source, at_rate, distribution, generated, run, sweep
from presets.resolve import resolve
from presets.traces import PUBLISHED

RATE = 10.0


@pytest.fixture(scope="module")
def chat():
    return answer(resolve(Scenario(kv_bytes_per_gpu=50e9)))


def requests(chat, source=Source.SCENARIO, count=1500, seed=3):
    return generated(chat.inputs.scenario.workload, source, rate_per_s=RATE, count=count, seed=seed)


@pytest.mark.parametrize("source", [Source.SCENARIO, Source.DAY])
def test_the_mean_rate_is_the_one_asked_for(chat, source):
    table = requests(chat, source, count=int(RATE * SHORT_DAY_S))
    assert table.rate_per_s == pytest.approx(RATE, rel=0.05)


def test_bursts_come_at_five_times_the_rate_and_then_pause(chat):
    gaps = np.diff(requests(chat, Source.BURSTS, count=5000).arrival_s)
    assert np.median(gaps) == pytest.approx(np.log(2) / (5 * RATE), rel=0.1)
    assert gaps.max() > BURST_S


def test_a_public_workload_keeps_its_lengths_at_another_rate():
    azure = next(one for one in PUBLISHED if one.name == "azure-conversation")
    table = generated(
        at_rate(azure.workload(), 20.0), Source.PUBLISHED, rate_per_s=20.0, count=20_000, seed=1
    )
    assert table.rate_per_s == pytest.approx(20.0, rel=0.05)
    assert float(np.mean(table.input_tokens)) == pytest.approx(1155, rel=0.05)
    assert float(np.mean(table.output_tokens)) == pytest.approx(211, rel=0.05)


def test_littles_law_holds_of_a_run(chat):
    table = requests(chat)
    ran = run(chat, table, replicas=3)
    at = np.linspace(table.arrival_s[300], table.arrival_s[-1], 2000)
    inside = ran.outstanding(at).mean()
    assert inside == pytest.approx(table.rate_per_s * ran.e2e_s[300:].mean(), rel=0.06)


def test_every_share_of_the_distribution_is_a_quantile():
    found = distribution(np.array([1.0, 2.0, np.nan, 4.0, 3.0]))
    assert (found.seconds[0], found.seconds[-1]) == (1.0, 4.0)
    assert np.interp(0.5, found.share, found.seconds) == pytest.approx(2.5, rel=1e-2)
    assert distribution(np.array([np.nan])).seconds == ()


def test_more_traffic_never_meets_more_targets(chat):
    points = sweep(
        chat, requests(chat, count=4000), replicas=2
    )  # with few, chance decides far beyond saturation
    met = [point.attainment for point in points]
    assert met == sorted(met, reverse=True)
    assert points[-1].state == "saturated"
    assert points[0].goodput_per_s == pytest.approx(points[0].rate_per_s, rel=0.05)


def test_users_who_wait_are_a_closed_loop():
    result = answer(resolve(Scenario(traffic=Traffic.USERS, users=16)))
    table = generated(result.inputs.scenario.workload, Source.DAY, rate_per_s=1.0, count=200, seed=0)
    ran = run(result, table, replicas=1)
    assert ran.outstanding(np.array([ran.makespan_s / 2]))[0] == 16


def test_what_does_not_serve_is_not_simulated(chat):
    short = answer(resolve(Scenario(model="textbook-13b", fidelity="textbook", gpu="rtx-4060", tp=1)))
    with pytest.raises(InputError, match="plan"):
        run(short, requests(chat, count=10), replicas=1)
