"""Speculation curves against the worked cases."""

import numpy as np
import pytest

from calc.answer import answer
from calc.scenario import Scenario
from calc.speculation_curves import BATCHES, draft_curve, sampled_tokens_per_pass, speedup_by_batch
from presets.resolve import resolve


def test_the_worked_draft():
    # worked cases spec-tokens and spec-speedup
    curve = draft_curve(acceptance=0.8, draft_cost=0.05)
    assert curve.tokens_per_pass[4] == pytest.approx(3.3616)
    assert curve.speedup[4] == pytest.approx(2.801, rel=1e-3)
    assert curve.speedup[0] == 1.0
    assert curve.speedup[curve.best] == max(curve.speedup)


def test_sampled_passes_lie_on_the_formula():
    curve = draft_curve(acceptance=0.8, draft_cost=0.0)
    assert sampled_tokens_per_pass(acceptance=0.8, seed=5) == pytest.approx(curve.tokens_per_pass, rel=0.02)


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
