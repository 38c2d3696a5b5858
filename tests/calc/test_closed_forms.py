"""Roofline and speculation: what must hold for all inputs, and simulations of small cases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import roofline, speculative

A100 = {"peak_flop_per_s": 312e12, "bandwidth_bytes_per_s": 2.04e12}
SHARES = st.floats(0, 0.99)


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-3, 1e6))
def test_the_roofline_is_the_lower_of_two_roofs(intensity):
    reached = roofline.attainable_flop_per_s(intensity_flop_per_byte=intensity, **A100)
    ridge = roofline.ridge_flop_per_byte(**A100)
    share = roofline.attainable_share(intensity_flop_per_byte=intensity, ridge_flop_per_byte=ridge)
    assert reached == pytest.approx(share * A100["peak_flop_per_s"])
    assert reached <= A100["peak_flop_per_s"] * (1 + 1e-12)
    assert reached <= intensity * A100["bandwidth_bytes_per_s"] * (1 + 1e-12)
    assert (share == 1) == (intensity >= ridge)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 10_000), st.integers(1, 20_000), st.integers(1, 20_000))
def test_activations_only_lower_the_intensity(tokens, d_in, d_out):
    shape = {"d_in": d_in, "d_out": d_out, "bytes_per_element": 2}
    whole = roofline.matmul_intensity(tokens=tokens, **shape)
    assert whole < roofline.weights_only_intensity(tokens=tokens, bytes_per_param=2)
    assert whole < roofline.matmul_intensity(tokens=tokens + 1, **shape)


def test_the_crossing_batch_has_the_ridge_s_intensity():
    batch = roofline.memory_bound_batch(bytes_per_param=2, **A100)
    assert roofline.weights_only_intensity(tokens=batch, bytes_per_param=2) == pytest.approx(
        roofline.ridge_flop_per_byte(**A100)
    )


def test_speculation_table_of_the_paper():
    """Leviathan et al. 2023, table 1 (costless drafts): acceptance, drafts, speed-up."""
    for acceptance, drafts, gain in (
        (0.6, 2, 1.96),
        (0.7, 3, 2.53),
        (0.8, 2, 2.44),
        (0.8, 5, 3.69),
        (0.9, 2, 2.71),
        (0.9, 10, 6.86),
    ):
        assert speculative.speedup(acceptance=acceptance, drafts=drafts, draft_cost=0) == pytest.approx(
            gain, abs=0.006
        )


def test_simulated_passes_yield_the_expected_tokens():
    uniforms = np.random.default_rng(0).random(200_000)
    accepted = speculative.sample_accepted(acceptance=0.8, drafts=4, uniforms=uniforms)
    assert accepted.min() == 0
    assert accepted.max() == 4
    assert accepted.mean() + 1 == pytest.approx(
        speculative.tokens_per_pass(acceptance=0.8, drafts=4), rel=0.005
    )
    assert np.mean(accepted == 4) == pytest.approx(0.8**4, rel=0.01)


@settings(deadline=None, max_examples=60)
@given(SHARES, st.integers(0, 64))
def test_more_drafts_yield_more_tokens_up_to_the_limit(acceptance, drafts):
    now = speculative.tokens_per_pass(acceptance=acceptance, drafts=drafts)
    more = speculative.tokens_per_pass(acceptance=acceptance, drafts=drafts + 1)
    assert 1 <= now <= more <= speculative.tokens_per_pass_limit(acceptance=acceptance) * (1 + 1e-12)


def test_certain_acceptance_keeps_every_draft():
    assert speculative.tokens_per_pass(acceptance=np.array([1.0, 0.0]), drafts=4).tolist() == [5.0, 1.0]


def test_the_best_length_is_where_the_speedup_peaks():
    lengths = [speculative.speedup(acceptance=0.8, drafts=k, draft_cost=0.05) for k in range(33)]
    best = speculative.best_draft_length(acceptance=0.8, draft_cost=0.05)
    assert lengths[best] == max(lengths)
    assert 1 < best < 32
    assert speculative.best_draft_length(acceptance=0.1, draft_cost=0.5) == 0


def test_checking_gets_dear_in_a_large_batch():
    """When the step already costs what its tokens cost, checking five times as many loses."""
    cheap = speculative.speedup_at_batch(
        acceptance=0.8, drafts=4, step_s=0.013, verify_s=0.0131, draft_step_s=0.0006
    )
    dear = speculative.speedup_at_batch(
        acceptance=0.8, drafts=4, step_s=0.040, verify_s=0.180, draft_step_s=0.002
    )
    assert cheap > 2
    assert dear < 1
