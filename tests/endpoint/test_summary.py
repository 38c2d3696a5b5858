"""Statistics of samples: percentiles, steady window, goodput, fit of TTFT. Expected values by hand or from scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from calc.endpoint.plan import TestPlan, budget_of
from calc.endpoint.samples import Sample
from calc.endpoint.summary import Spread, Window, fit_ttft, level_of, meets, steady_window, tokens_in
from calc.slo import Slo


def sample(start, first, last, *, tokens=11, fault=None):
    return Sample(
        stage="s",
        scheduled_s=start,
        start_s=start,
        first_s=first,
        last_s=last,
        end_s=last,
        output_tokens=tokens,
        prompt_tokens=10,
        fault=fault,
    )


def test_tpot_is_the_gap_between_tokens_not_with_the_first():
    assert sample(0, 1, 2).tpot_s == pytest.approx(0.1)
    assert sample(0, 1, 1, tokens=1).tpot_s is None


def test_an_open_loop_counts_from_the_scheduled_moment():
    late = Sample(stage="s", scheduled_s=1.0, start_s=3.0, first_s=3.5, last_s=4.0, end_s=4.0)
    assert late.ttft_s == 2.5
    assert late.e2e_s == 3.0


def test_p99_needs_a_hundred_samples():
    assert Spread.of(range(99)).p99 is None
    assert Spread.of(range(101)).p99 == pytest.approx(99.0)
    assert Spread.of([None, None]) is None


def test_the_steady_window_runs_from_the_nth_completion_to_the_last_issue():
    users = [sample(t + u / 10, t + u / 10 + 0.5, t + u / 10 + 1.0) for u in range(2) for t in range(5)]
    window = steady_window(users, 2)
    assert (window.start_s, window.end_s) == (pytest.approx(1.1), pytest.approx(4.1))
    assert steady_window(users[:2], 2) is None


def test_a_closed_loop_of_equal_requests_has_its_exact_throughput():
    users = [sample(t + u / 4, t + u / 4, t + u / 4 + 1.0, tokens=100) for u in range(4) for t in range(8)]
    level = level_of(users, concurrency=4)
    assert level.steady
    assert level.tokens_per_s == pytest.approx(400.0)
    assert level.requests_per_s == pytest.approx(4.0, rel=0.2)


def test_failures_are_never_good_and_single_tokens_have_no_tpot_to_miss():
    slo = Slo(ttft_s=1.0, tpot_s=0.1)
    assert meets(sample(0, 0.5, 1.5), slo)
    assert not meets(sample(0, 1.5, 2.5), slo)
    assert not meets(sample(0, 0.5, 2.0), slo)
    assert not meets(sample(0, 0.5, 1.5, fault="dropped mid-stream"), slo)
    assert meets(sample(0, 0.5, 0.5, tokens=1), slo)
    mixed = [sample(i, i + 0.5, i + 1.0, fault=None if i % 2 else "dropped mid-stream") for i in range(8)]
    level = level_of(mixed, concurrency=8, slo=slo)
    assert level.attainment == 0.5
    assert level.goodput_per_s == pytest.approx(4 / 8.0)
    assert level_of(mixed, concurrency=8).goodput_per_s is None


def test_tokens_of_a_window_are_the_part_of_each_stream_within_it():
    assert tokens_in([sample(0, 0, 10, tokens=100)], Window(start_s=5, end_s=20)) == pytest.approx(50)


def test_the_fit_finds_the_terms_that_made_the_times():
    n = np.array([256, 1024, 4096, 8192], dtype=float)
    fit = fit_ttft(n, 0.02 + 1e-4 * n + 2e-9 * n**2)
    assert (fit.a_s, fit.b_s, fit.c_s) == (pytest.approx(0.02), pytest.approx(1e-4), pytest.approx(2e-9))
    assert fit.error < 1e-9


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(10, 20_000), st.floats(0.001, 100)), min_size=6, max_size=20))
def test_the_fit_is_non_negative_least_squares(points):
    tokens, seconds = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    fit = fit_ttft(tokens, seconds)
    if len(np.unique(np.round(tokens, -1))) < 3:
        return
    columns = np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1) / seconds[:, None]
    scale = columns.max(axis=0)
    _, norm = nnls(columns / scale, np.ones_like(seconds))
    ours = np.linalg.norm(fit.at(tokens) / seconds - 1.0)
    assert ours == pytest.approx(norm, rel=1e-6, abs=1e-9)
    assert min(fit.a_s, fit.b_s, fit.c_s) >= 0


def test_one_prompt_length_fits_nothing():
    assert fit_ttft([100, 101], [1.0, 1.1]) is None


def test_a_plan_shrinks_to_the_servers_context_and_states_its_budget():
    plan = TestPlan().within(4096)
    assert plan.prompt_lengths[-1] < 4096
    assert len(plan.prompt_lengths) == 3
    budget = budget_of(TestPlan(prompt_lengths=(100,), prompt_repeats=2, decode_repeats=0, concurrency=(4,)))
    assert budget.requests == 3 + 2 + 32
    assert budget.output_tokens == 8 * 5 + 128 * 32
    assert f"{budget.requests:,} requests" in budget.words
