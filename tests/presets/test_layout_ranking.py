"""Layouts are ranked as they were measured: the shipped profiles on public serving points, and Kendall's tau by scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from presets.layout_ranking import kendall_tau, layout_rankings, shipped_times

values = st.lists(st.integers(0, 6).map(float), min_size=4, max_size=9)


@settings(max_examples=60, deadline=None)
@given(values, st.randoms(use_true_random=False))
def test_tau_is_scipys(first, random):
    second = [random.choice(first) for _ in first]
    want = kendalltau(first, second).statistic
    found = kendall_tau(tuple(first), tuple(second))
    assert found == (0.0 if np.isnan(want) else pytest.approx(want))


def test_the_shipped_profiles_rank_layouts_as_measured():
    rankings = layout_rankings(shipped_times())
    groups = {ranking.group for ranking in rankings}
    assert len(groups) >= 30
    means = [np.mean([r.tau for r in rankings if r.group == group]) for group in groups]
    assert np.mean(means) >= 0.7
    assert np.mean([r.kept >= 0.9 for r in rankings]) >= 0.8
