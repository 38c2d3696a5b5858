"""Made-up traffic has the statistics that were asked for; seeds repeat it."""

import numpy as np
import pytest
from scipy import stats

from calc.errors import InputError
from calc.simulation import workload as made
from calc.simulation.cluster import Cluster
from calc.simulation.rules import engine_rules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable
from calc.workload import Lengths, LengthShape, Workload

FIXED = Lengths(mean_tokens=100)
WIDE = Lengths(mean_tokens=400, shape=LengthShape.LOGNORMAL, cv=1.5)
STEP = StepTable.affine(fixed_s=5e-3, prefill_s=2e-5, decode_s=1e-4, kv_s=1e-8)


def draw(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("family", ["gamma", "weibull"])
@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_renewal_arrivals_have_their_rate_and_cv(family, cv):
    gaps = np.diff(made.renewal_arrivals(draw(), rate_per_s=4.0, count=300_000, cv=cv, family=family))
    assert gaps.mean() == pytest.approx(0.25, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.04)


def test_poisson_gaps_are_exponential():
    gaps = np.diff(made.renewal_arrivals(draw(3), rate_per_s=2.0, count=20_000))
    assert stats.kstest(gaps, "expon", args=(0, 0.5)).pvalue > 0.01


def test_the_weibull_shape_agrees_with_scipy():
    for cv in (0.3, 0.8, 1.0, 2.0, 6.0):
        shape = made.weibull_shape(cv)
        mean, variance = stats.weibull_min.stats(shape, moments="mv")
        assert np.sqrt(variance) / mean == pytest.approx(cv, rel=1e-6)


def test_bursts_have_the_mean_rate_and_more_dispersion():
    times = made.on_off_arrivals(draw(), rate_per_s=10.0, count=200_000, on_s=0.5, off_s=1.5)
    assert (np.diff(times) >= 0).all()
    assert len(times) / times[-1] == pytest.approx(10.0, rel=0.05)
    counts = np.bincount(times.astype(int))
    assert counts.var() / counts.mean() > 5


@pytest.mark.parametrize("peak", [1.0, 1.5, 3.0, 8.0])
def test_a_day_has_its_mean_and_its_peak(peak):
    times = made.diurnal_arrivals(draw(), rate_per_s=20.0, count=400_000, peak_factor=peak, period_s=1000.0)
    days = int(times[-1] // 1000)
    inside = times[times < days * 1000]
    assert len(inside) / (days * 1000) == pytest.approx(20.0, rel=0.02)
    hours = np.bincount((inside % 1000 // 20).astype(int), minlength=50) / (days * 20)
    assert hours.max() == pytest.approx(20.0 * peak, rel=0.06)


def test_lengths_have_their_mean_cv_and_correlation():
    given, answered = made.draw_lengths(draw(), 300_000, prompt=WIDE, answer=WIDE, correlation=0.7)
    for values in (given, answered):
        assert values.mean() == pytest.approx(400, rel=0.02)
        assert values.std() / values.mean() == pytest.approx(1.5, rel=0.06)
        assert values.min() >= 1
    assert np.corrcoef(np.log(given), np.log(answered))[0, 1] == pytest.approx(0.7, abs=0.02)
    fixed, _ = made.draw_lengths(draw(), 5, prompt=FIXED, answer=WIDE)
    assert fixed.tolist() == [100] * 5


def test_users_wait_for_their_answer_and_think():
    table = made.closed_loop(draw(), users=7, count=350, prompt=FIXED, answer=FIXED, think_s=0.5)
    result = simulate(table, engine_rules("vllm", num_blocks=10_000), STEP)
    moments = np.linspace(0, result.last_s.max(), 400)
    assert result.outstanding(moments).max() <= 7
    later = np.arange(7, 350)
    np.testing.assert_allclose(result.arrival_s[later], result.last_s[later - 7] + table.think_s[later])


def test_conversations_grow_and_hit_what_was_said():
    starts = made.renewal_arrivals(draw(), rate_per_s=0.5, count=200)
    table = made.conversations(
        draw(1), starts, turns=4, said=FIXED, answered=FIXED, think_s=5.0, system_tokens=64
    )
    later = table.predecessor >= 0
    before = table.predecessor[later]
    grown = table.input_tokens[before] + table.output_tokens[before] + 100
    np.testing.assert_array_equal(table.input_tokens[later], grown)
    assert len(table) / 200 == pytest.approx(4, rel=0.2)
    rules = engine_rules("vllm", num_blocks=100_000)
    result = simulate(table, rules, STEP)
    expected = (table.input_tokens[before] + table.output_tokens[before] - 1) // 16 * 16
    np.testing.assert_array_equal(result.cached_tokens[later], expected)
    cold = simulate(table, engine_rules("vllm", num_blocks=100_000, prefix_cache=False), STEP)
    assert result.ttft_s[later].mean() < cold.ttft_s[later].mean()


def test_a_shared_prompt_is_cached_for_all_but_the_first():
    workload = Workload(rate_per_s=3.0, input=Lengths(mean_tokens=800), output=FIXED, prefix_share=0.5)
    table = made.requests_of(workload, count=500, seed=3)
    result = simulate(table, engine_rules("vllm", num_blocks=100_000), STEP)
    assert result.cached_tokens[0] == 0
    assert (result.cached_tokens[1:] == 400).all()


def test_the_seed_repeats_the_traffic():
    workload = Workload(rate_per_s=3.0, input=WIDE, output=WIDE, arrival_cv=2.0, peak_factor=2.0)
    one, same, other = (made.requests_of(workload, count=100, seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.arrival_s, same.arrival_s)
    np.testing.assert_array_equal(one.input_tokens, same.input_tokens)
    assert (one.arrival_s != other.arrival_s).any()


@pytest.mark.parametrize(
    "call",
    [
        lambda: made.renewal_arrivals(draw(), rate_per_s=0.0, count=5),
        lambda: made.renewal_arrivals(draw(), rate_per_s=1.0, count=0),
        lambda: made.unit_gaps(draw(), 5, family="pareto"),
        lambda: made.weibull_shape(0.001),
        lambda: made.diurnal_concentration(0.5),
        lambda: made.on_off_arrivals(draw(), rate_per_s=1.0, count=5, on_s=0.0, off_s=1.0),
        lambda: made.draw_lengths(draw(), 5, prompt=FIXED, answer=FIXED, correlation=1.5),
        lambda: made.closed_loop(draw(), users=0, count=5, prompt=FIXED, answer=FIXED),
        lambda: made.conversations(draw(), np.zeros(2), turns=0.5, said=FIXED, answered=FIXED, think_s=0),
    ],
)
def test_impossible_traffic_is_refused(call):
    with pytest.raises(InputError, match="got"):
        call()


def test_users_who_wait_share_text_as_others_do():
    table = made.closed_loop(draw(), users=3, count=10, prompt=FIXED, answer=FIXED, prefix_share=0.5)
    opened = made.open_requests(draw(), np.arange(10.0), prompt=FIXED, answer=FIXED, prefix_share=0.5)
    assert table.prefix_count.tolist() == opened.prefix_count.tolist()
    assert table.prefix_ids.tolist() == opened.prefix_ids.tolist()
    plain = made.closed_loop(draw(), users=3, count=10, prompt=FIXED, answer=FIXED)
    assert table.input_tokens.tolist() == plain.input_tokens.tolist()


def test_more_shared_text_than_a_machine_holds_is_refused_with_what_would_do():
    long = Lengths(mean_tokens=1_000_000)
    with pytest.raises(InputError, match="Simulate 1,280 requests at most"):
        made.open_requests(draw(), np.arange(10_000.0), prompt=long, answer=FIXED, prefix_share=0.5)


def test_replicas_that_outgrow_a_machine_are_refused_before_they_are_made():
    table = made.open_requests(draw(), np.arange(100.0), prompt=FIXED, answer=FIXED, prefix_share=0.5)
    rules = engine_rules("vllm", num_blocks=100_000)
    with pytest.raises(InputError, match="replicas"):
        simulate(table, rules, STEP, cluster=Cluster(replicas=10_000), compiled=False)
