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


@pytest.mark.parametrize(
    ("scenario", "acceptance", "drafts", "cost"),
    [
        (Scenario(), 0.8, 4, 0.05),
        (Scenario(model="Qwen/Qwen3-30B-A3B", gpu="h100-sxm5-80gb"), 0.9, 8, 0.02),
        (Scenario(model="meta-llama/Llama-3.3-70B-Instruct", gpu="h200-sxm-141gb"), 0.4, 4, 0.1),
    ],
    ids=["dense", "experts", "losing"],
)
def test_the_simulator_serves_as_fast_as_the_formula_says(scenario, acceptance, drafts, cost):
    """Within 3% of E[tokens] T(B) / (T(B (k+1)) + k T_draft(B)), on the clocks of the page; below 1 where the formula is."""
    result = answer(resolve(scenario))
    batches = (1, 16, 128)
    found = simulated_speedups(result, acceptance=acceptance, drafts=drafts, draft_cost=cost, batches=batches)
    formula = speedup_by_batch(result, acceptance=acceptance, drafts=drafts, draft_cost=cost)
    expected = [formula[BATCHES.index(batch)] for batch in batches]
    assert found == pytest.approx(expected, rel=0.03)
    assert [gain < 1 for gain in found] == [gain < 1 for gain in expected]
    assert (expected[2] < 1) == (acceptance == 0.4)


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
