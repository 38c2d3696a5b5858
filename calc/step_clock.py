"""The simulator's clock from the step model: a `StepTable` that gives the seconds of any pass of one replica.

The table is linear between knots in prompt tokens and in decoding sequences, and linear in cached tokens and in prompt
attention (DESIGN: simulator's clock); `error` says what that loses against the step model itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc.operators import ForwardPass
from calc.simulation.step_table import StepTable
from calc.step import StepModel
from calc.timing import TextbookTiming

Array = NDArray[np.float64]

PREFILL_KNOTS = (0, 1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
DECODE_KNOTS = (0, 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def textbook_clock(timing: TextbookTiming, *, context_tokens: float) -> StepTable:
    """The textbook's step: weights once a pass, every cached token read, prompts and sequences by their FLOP.

    A pass costs the larger of its bytes and its FLOP in the textbook; as a sum of terms the table keeps the bytes of
    decoding and the FLOP of prompts, which is that maximum for memory-bound decoding and compute-bound prompts.
    """
    step = timing.decode_step(batch=1, context_tokens=context_tokens)
    token_s = float(timing.prefill_s(tokens=1000.0, cached_tokens=0.0).best) / 1000.0
    return StepTable.affine(
        fixed_s=step.terms_s["weights"],
        prefill_s=token_s,
        decode_s=0.0,
        kv_s=step.terms_s["kv"] / context_tokens,
    )


def step_clock(model: StepModel, *, context_tokens: float, prompt_tokens: float) -> StepTable:
    """A table of `model`, its slopes taken at the traffic's usual context and prompt."""
    prompts = np.asarray(PREFILL_KNOTS, dtype=float)
    decoding = np.asarray(DECODE_KNOTS, dtype=float)
    kv_s = _kv_slope(model, decoding, context_tokens)
    attention_s = _attention_slope(model, prompt_tokens)
    base = np.zeros((len(prompts), len(decoding)))
    alone = _seconds(model, ForwardPass.decode(decoding[1:], context_tokens))
    base[0, 1:] = alone - kv_s * decoding[1:] * context_tokens
    for row, tokens in enumerate(prompts[1:], start=1):
        mixed = _seconds(model, ForwardPass.mixed(decoding, context_tokens, prompt_tokens=tokens))
        base[row] = mixed - kv_s * decoding * context_tokens - attention_s * tokens * tokens / 2.0
    base = np.maximum(base, 1e-6)
    base[0, 0] = base[0, 1]
    return StepTable(
        prefill_knots=tuple(prompts),
        decode_knots=tuple(decoding),
        base_s=tuple(map(tuple, base.tolist())),
        kv_s=kv_s,
        attention_s=attention_s,
    )


def clock_error(table: StepTable, model: StepModel, *, context_tokens: float, prompt_tokens: float) -> float:
    """The largest relative difference from the step model, between the knots, at half to twice the usual context."""
    worst = 0.0
    for factor in (0.5, 1.0, 2.0):
        context = factor * context_tokens
        for batch in (3, 12, 40, 80, 160):
            want = float(_seconds(model, ForwardPass.decode(float(batch), context))[0])
            worst = max(worst, abs(table.seconds(0, batch, batch * context) / want - 1.0))
        tokens = round(factor * prompt_tokens)
        want = float(_seconds(model, ForwardPass.mixed(20.0, context, prompt_tokens=float(tokens)))[0])
        got = table.seconds(tokens, 20, 20 * context, tokens * tokens / 2.0)
        worst = max(worst, abs(got / want - 1.0))
    return worst


def _seconds(model: StepModel, step: ForwardPass) -> Array:
    return np.atleast_1d(np.asarray(model.step(step).total.best, dtype=float))


def _kv_slope(model: StepModel, decoding: Array, context_tokens: float) -> float:
    """Seconds per cached token that a decoding sequence reads, at the middle batch."""
    batch = float(decoding[len(decoding) // 2])
    near: Any = _seconds(model, ForwardPass.decode(batch, np.array([context_tokens, 2.0 * context_tokens])))
    return max(0.0, float(near[1] - near[0]) / (batch * context_tokens))


def _attention_slope(model: StepModel, prompt_tokens: float) -> float:
    """Seconds per (query, key) pair of prompt attention, from a prompt behind twice the prefix."""
    prefix = np.array([prompt_tokens, 2.0 * prompt_tokens])
    near: Any = _seconds(model, ForwardPass.prefill(prompt_tokens, prefix=prefix))
    return max(0.0, float(near[1] - near[0]) / (prompt_tokens * prompt_tokens))
