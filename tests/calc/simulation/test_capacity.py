"""Results, exports and the search for what holds the targets, against closed forms and the definitions."""

import csv
import io

import numpy as np
import pytest

from calc.errors import InputError
from calc.simulation.capacity import Searched, fewest_replicas, largest_rate, try_load
from calc.simulation.cluster import Cluster, Router
from calc.simulation.export import chrome_trace, request_lines
from calc.simulation.requests import RequestTable
from calc.simulation.rules import engine_rules
from calc.simulation.run import simulate
from calc.simulation.state import warm_up_end
from calc.simulation.step_table import StepTable
from calc.simulation.workload import renewal_arrivals
from calc.slo import Slo

STEP = StepTable.affine(fixed_s=5e-3, prefill_s=5e-5, decode_s=1e-4, kv_s=1e-7)
SECOND = StepTable.affine(fixed_s=1.0, prefill_s=0.0, decode_s=0.0, kv_s=0.0)
RULES = engine_rules("vllm", num_blocks=20_000, max_seqs=64)
ONE_BY_ONE = engine_rules("vllm", num_blocks=10, max_seqs=1, token_budget=10)


def traffic(count=3000, rate=6.0, seed=0):
    draw = np.random.default_rng(seed)
    return RequestTable(
        arrival_s=renewal_arrivals(draw, rate_per_s=rate, count=count),
        input_tokens=draw.integers(1, 900, count),
        output_tokens=draw.integers(1, 200, count),
    )


@pytest.fixture(scope="module")
def result():
    return simulate(traffic(), RULES, STEP, log_passes=500)


def test_latencies_follow_their_definitions(result):
    several = result.output_tokens > 1
    whole = result.ttft_s + (result.output_tokens - 1) * np.where(several, result.tpot_s, 0.0)
    np.testing.assert_allclose(whole, result.e2e_s)
    spread = result.spread("e2e_s")
    assert spread.p99 == np.percentile(result.e2e_s, 99)
    assert spread.mean == result.e2e_s.mean()
    assert result.decode_tokens == (result.output_tokens - 1).sum()
    assert result.prefill_tokens == result.input_tokens.sum()


def test_gaps_agree_with_tpot_and_their_bins_with_the_mean(result):
    gaps = (result.output_tokens - 1)[result.output_tokens > 1]
    total_s = (result.last_s - result.first_s).sum()
    assert result.itl().mean == pytest.approx(total_s / gaps.sum(), rel=1e-9)
    assert result.itl().p50 <= result.itl().p99 <= result.longest_gap_s * 1.003


def test_series_add_up_to_the_run(result):
    width = np.diff(result.series.edges_s)
    assert (result.series.decode_tokens_per_s * width).sum() == pytest.approx(result.decode_tokens)
    assert (result.series.prefill_tokens_per_s * width).sum() == pytest.approx(result.prefill_tokens)
    in_engine_s = (result.last_s - result.scheduled_s).sum()
    assert (result.series.running * width).sum() == pytest.approx(in_engine_s, rel=0.05)
    assert result.series.used_blocks.max() <= result.peak_blocks


def test_goodput_counts_requests_that_meet_every_target(result):
    slo = Slo(ttft_s=0.05, tpot_s=0.012)
    good = (result.ttft_s <= 0.05) & ~(result.tpot_s > 0.012)
    assert 0.02 < good.mean() < 0.98
    assert result.attainment(slo) == good.mean()
    assert result.goodput_per_s(slo) == pytest.approx(
        good.sum() / (result.last_s.max() - result.arrival_s.min())
    )
    assert result.attainment(Slo()) == 1.0


def test_little_s_law_holds_in_the_simulator(result):
    moments = np.linspace(result.arrival_s[0], result.arrival_s[-1], 20_001)
    rate = len(result) / (result.arrival_s[-1] - result.arrival_s[0])
    assert result.outstanding(moments).mean() == pytest.approx(rate * result.e2e_s.mean(), rel=0.02)


def test_requests_as_csv(result):
    rows = list(csv.DictReader(io.StringIO("".join(request_lines(result)))))
    assert len(rows) == len(result)
    assert float(rows[7]["e2e_s"]) == result.e2e_s[7]
    assert all(row["tpot_s"] for row in rows if int(row["output_tokens"]) > 1)


def test_the_schedule_as_a_trace(result):
    events = chrome_trace(result)["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    decode = [event for event in spans if event["cat"] == "decode"]
    assert len(decode) == (result.output_tokens > 1).sum()
    by_slot = {}
    for event in sorted(spans, key=lambda e: e["ts"]):
        slot = (event["pid"], event["tid"])
        assert event["ts"] >= by_slot.get(slot, 0.0) - 1e-3
        by_slot[slot] = event["ts"] + event["dur"]
    counters = [event for event in events if event["ph"] == "C" and event["name"] == "running"]
    assert len(counters) == 500


def test_warm_up_is_cut_where_the_transient_ends():
    draw = np.random.default_rng(0)
    noise = draw.normal(10, 1, 2000)
    noise[:200] += np.linspace(30, 0, 200)
    assert 100 <= warm_up_end(noise) <= 300
    assert warm_up_end(draw.normal(10, 1, 2000)) < 900
    assert warm_up_end(np.ones(20)) == 0


def md1_requests(count=60_000):
    arrival_s = renewal_arrivals(np.random.default_rng(5), rate_per_s=0.5, count=count)
    return RequestTable(
        arrival_s=arrival_s, input_tokens=np.full(count, 5), output_tokens=np.ones(count, np.int64)
    )


def test_the_largest_rate_is_that_of_the_closed_form():
    """M/D/1 with D 1: a mean sojourn of 3 is reached at rho 0.8, since the wait is rho / (2 (1 - rho)) = 2."""
    searched = Searched(requests=md1_requests(), rules=ONE_BY_ONE, step=SECOND, slo=Slo(ttft_s=3.0))
    capacity = largest_rate(searched)
    assert capacity.best.rate_per_s == pytest.approx(0.8, rel=0.03)
    held = {trial.rate_per_s for trial in capacity.trials if trial.holds}
    lost = {trial.rate_per_s for trial in capacity.trials if not trial.holds}
    assert max(held) < min(lost) <= max(held) * 1.011


def test_a_percentile_stops_a_lost_trial_early():
    slo = Slo(ttft_s=3.0, percentile=99)
    searched = Searched(requests=md1_requests(400_000), rules=ONE_BY_ONE, step=SECOND, slo=slo)
    trial = try_load(searched, rate_per_s=3.0, replicas=1)
    assert not trial.holds
    assert trial.result is None


def test_the_fewest_replicas_hold_and_one_less_does_not():
    slo = Slo(ttft_s=2.0, percentile=95)
    searched = Searched(
        requests=md1_requests().at_rate(5.0),
        rules=ONE_BY_ONE,
        step=SECOND,
        slo=slo,
        cluster=Cluster(router=Router.LEAST_OUTSTANDING),
    )
    capacity = fewest_replicas(searched)
    best = capacity.best.replicas
    assert 5 < best < 12
    assert not try_load(searched, rate_per_s=5.0, replicas=best - 1).holds


def test_nothing_holds_an_impossible_target():
    slo = Slo(ttft_s=0.5)
    searched = Searched(requests=md1_requests(500), rules=ONE_BY_ONE, step=SECOND, slo=slo)
    assert fewest_replicas(searched, most=8).best is None
    assert largest_rate(searched).best is None
    with pytest.raises(InputError, match="targets"):
        Searched(requests=md1_requests(500), rules=ONE_BY_ONE, step=SECOND, slo=Slo())
