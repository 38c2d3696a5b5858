"""Curves against the worked cases and against the functions that they sweep."""

import numpy as np
import pytest

from calc.answer import answer
from calc.curves import batch_curve, context_curve, memory_bar
from calc.errors import InputError
from calc.formulas import FORMULAS
from calc.memory.kv import largest_context, sequence_bytes
from calc.scenario import Scenario, Traffic
from calc.worked.substitution import STEP_FORMULAS, formulas_of, symbols_of
from presets import models
from presets.resolve import resolve

TEXTBOOK_13B = {
    "model": "textbook-13b",
    "gpu": "a100-textbook",
    "kv_bytes_per_gpu": 50e9,
    "fidelity": "textbook",
}


@pytest.fixture(scope="module")
def textbook_13b():
    return answer(resolve(Scenario(**TEXTBOOK_13B)))


def test_batch_curve_passes_through_the_worked_steps(textbook_13b):
    # worked case step-13b-a100
    curve = batch_curve(textbook_13b, "textbook")
    worked_ms = np.interp([1, 14, 79, 144], curve.batch, 1e3 * curve.step_s.best)
    assert worked_ms == pytest.approx([13.0, 16.34, 33.05, 49.75], rel=2e-3)
    assert float(curve.at_tokens_per_s.best) == pytest.approx(2390, rel=2e-3)
    assert (curve.wall, curve.target, curve.at) == (79, 144, 79)
    assert curve.compute_from == pytest.approx(152.94, rel=1e-3)
    assert 1 < curve.gain_of_doubling < 2


def test_batch_curve_says_why_there_is_none():
    short = answer(resolve(Scenario(model="textbook-13b", gpu="rtx-4060", tp=1, fidelity="textbook")))
    with pytest.raises(InputError, match="nothing serves"):
        batch_curve(short, "textbook")


def test_memory_bar_adds_up_to_the_card(textbook_13b):
    bar = memory_bar(textbook_13b)
    assert sum(size for _, size in bar.parts) == pytest.approx(80e9)
    assert bar.wall_bytes == pytest.approx(80e9)
    assert bar.active_per_replica == pytest.approx(
        85.1 / 3, rel=1e-3
    )  # worked case prefill-13b-a100 over 3 GPUs


@pytest.mark.parametrize("model_id", ["Qwen/Qwen3-0.6B", "mistralai/Mistral-7B-v0.1", "example-8b"])
def test_context_curve_is_the_sequence_bytes_at_every_point(model_id):
    spec = models.load(model_id)
    curve = context_curve(spec, kv_dtype="bf16")
    assert list(curve.bytes) == [sequence_bytes(spec, n, "bf16") for n in curve.tokens]
    assert list(curve.tokens) == sorted(set(curve.tokens))
    for window, _ in curve.kinks:
        assert window in curve.tokens


def test_example_8b_holds_seven_long_conversations_worth_of_tokens():
    # worked case kv-example-8b: 32 GB over 131,072 bytes a token
    assert largest_context(models.load("example-8b"), 32_000_000_000, "bf16") == 32_000_000_000 // 131_072


@pytest.mark.parametrize("step", STEP_FORMULAS)
@pytest.mark.parametrize(
    "change",
    [{}, {"paged": False}, {"traffic": Traffic.USERS, "kv_bytes_per_gpu": None}, {"prefix_share": 0.5}],
)
def test_the_maths_of_a_step_gives_the_steps_own_numbers(step, change):
    result = answer(resolve(Scenario(**TEXTBOOK_13B | change)))
    symbols = symbols_of(result, step)
    values = {one: float(FORMULAS[one].value(symbols)) for one in formulas_of(result, step)}
    expected = {
        "cache_bytes": result.memory.kv_bytes,
        "tokens_that_fit": result.memory.tokens,
        "sequences_paged": result.sequences.paged,
        "sequences_reserved": result.sequences.reserved,
        "decode_step_s": result.decode.time.step_s.best,
        "tokens_per_s": result.decode.tokens_per_s,
        "prefill_s": result.prefill.prefill_s.best,
        "e2e_s": result.fleet.e2e_s.best,
        "requests_in_system": result.fleet.active,
        "prefill_gpus": result.fleet.prefill_busy,
        "decode_gpus": result.fleet.decode_busy,
        "gpus_to_buy": result.fleet.replicas,
    }
    assert values == {one: pytest.approx(expected[one], rel=1e-6) for one in values}
