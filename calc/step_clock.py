"""The simulator's clock from the step model: a `StepTable` that gives the seconds of any pass of one replica.

The table is linear between knots in prompt tokens and in decoding sequences, and linear in cached tokens, in those inside
a sliding window, and in prompt attention; `clock_error` says what that loses against the step model itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc.operators import ForwardPass
from calc.simulation.step_table import StepTable
from calc.step import StepModel
from calc.textbook_sizing import TextbookTiming

Array = NDArray[np.float64]

PREFILL_KNOTS = (
    0, 1, 4, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
)  # fmt: skip
DECODE_KNOTS = (
    0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
    384, 448, 512, 768, 1024,
)  # fmt: skip

CHECKED_BATCHES = (7, 13, 36, 72, 144, 300)  # between the knots
CHECKED_PROMPTS = (2, 5, 16)


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


def step_clock(
    model: StepModel, *, context_tokens: float, prompt_tokens: float, drafts: int = 0
) -> StepTable:
    """A table of `model`, its slopes taken at the traffic's usual context and prompt.

    With `drafts` its passes verify them: each decoding sequence enters with drafts + 1 tokens, and the knots are those
    tokens, as the simulator asks for them. (As so many sequences of one token it would be 4 to 8% too slow in a crowd: they
    would each be scheduled, and read a cache of their own.)

    Where attention reads no more than a window, a token inside it costs what all layers read, and beyond it what is
    left; each slope is taken on its own side.
    """
    prompts = np.asarray(PREFILL_KNOTS, dtype=float)
    decoding = np.asarray(DECODE_KNOTS, dtype=float)
    window = _window(model)
    each = 1 + drafts
    kv_s, window_s = _kv_slopes(model, decoding, context_tokens, window, tokens=each)
    attention_s = _attention_slope(model, prompt_tokens)
    read_s = kv_s * context_tokens + window_s * min(context_tokens, window)
    base = np.zeros((len(prompts), len(decoding)))
    alone = ForwardPass.verify(decoding[1:], context_tokens, drafts=drafts)
    base[0, 1:] = _seconds(model, alone) - read_s * decoding[1:]
    for row, tokens in enumerate(prompts[1:], start=1):
        packed = max(1.0, tokens / prompt_tokens)  # more tokens than a prompt has are several prompts
        beside = ForwardPass.mixed(decoding, context_tokens, prompt_tokens=tokens)
        mixed = _seconds(model, replace(beside, tokens_per_sequence=float(each), prefill_sequences=packed))
        base[row] = mixed - read_s * decoding - attention_s * tokens * tokens / packed / 2.0
    base = np.maximum(base, 1e-6)
    base[0, 0] = base[0, 1]
    return StepTable(
        prefill_knots=tuple(prompts),
        decode_knots=tuple(each * decoding),
        base_s=tuple(map(tuple, base.tolist())),
        kv_s=kv_s,
        attention_s=attention_s,
        window=window,
        window_s=window_s,
    )


def clock_error(
    table: StepTable, model: StepModel, *, context_tokens: float, prompt_tokens: float, drafts: int = 0
) -> float:
    """The largest relative difference from the step model, between the knots, at half to twice the usual context."""
    worst, each = 0.0, 1 + drafts
    for factor in (0.5, 1.0, 2.0):
        context = factor * context_tokens
        inside = min(context, table.window)
        for batch in CHECKED_BATCHES:
            want = float(_seconds(model, ForwardPass.verify(float(batch), context, drafts=drafts))[0])
            got = table.seconds(0, each * batch, batch * context, window_tokens=batch * inside)
            worst = max(worst, abs(got / want - 1.0))
        tokens = round(factor * prompt_tokens)
        mixed = ForwardPass.mixed(20.0, context, prompt_tokens=float(tokens))
        want = float(_seconds(model, replace(mixed, tokens_per_sequence=float(each)))[0])
        got = table.seconds(tokens, 20 * each, 20 * context, tokens * tokens / 2.0, 20 * inside)
        worst = max(worst, abs(got / want - 1.0))
    for prompts in CHECKED_PROMPTS:  # of the usual length, in one pass
        tokens = round(prompts * prompt_tokens)
        if tokens > PREFILL_KNOTS[-1]:
            continue
        packed = ForwardPass(prefill_tokens=float(tokens), prefill_sequences=float(prompts))
        want = float(_seconds(model, packed)[0])
        got = table.seconds(tokens, 0, 0.0, tokens * prompt_tokens / 2.0, window_tokens=0.0)
        worst = max(worst, abs(got / want - 1.0))
    return worst


def _window(model: StepModel) -> int:
    """Tokens beyond which the decode attention with the most bytes reads no more; 0 without such a bound.

    A sliding window, or the number of tokens that a sparse attention selects.
    """
    numbers = model.operators.numbers
    bounds = np.broadcast_to(numbers["window"] * numbers["stride"], numbers["count"].shape).ravel()
    weight = np.ravel(numbers["count"] * numbers["kv_bytes_per_cached_token"])
    bounded = np.isfinite(bounds) & (bounds > 0) & (weight > 0)
    return int(bounds[bounded][np.argmax(weight[bounded])]) if bounded.any() else 0


def _seconds(model: StepModel, step: ForwardPass) -> Array:
    return np.atleast_1d(np.asarray(model.step(step).total.best, dtype=float))


def _kv_slopes(
    model: StepModel, decoding: Array, context_tokens: float, window: int, *, tokens: int
) -> tuple[float, float]:
    """(seconds per attended token, more per token inside the window) of a decoding sequence, at the middle batch."""
    batch = float(decoding[len(decoding) // 2])

    def slope(low: float, high: float) -> float:
        step = ForwardPass.verify(batch, np.array([low, high]), drafts=tokens - 1)
        near: Any = _seconds(model, step)
        return max(0.0, float(near[1] - near[0]) / (batch * (high - low)))

    if window == 0:
        return slope(context_tokens, 2.0 * context_tokens), 0.0
    beyond = slope(max(context_tokens, float(window)), 2.0 * max(context_tokens, float(window)))
    return beyond, max(0.0, slope(window / 2.0, float(window)) - beyond)


def _attention_slope(model: StepModel, prompt_tokens: float) -> float:
    """Seconds per (query, key) pair of prompt attention: one prompt against two of half its length, equally many tokens.

    What attention takes per token of short prompts beside that stays in the table, however many prompts share a pass.
    """
    tokens = 2.0 * prompt_tokens
    one, two = _seconds(model, ForwardPass(prefill_tokens=tokens, prefill_sequences=np.array([1.0, 2.0])))
    return max(0.0, float(one - two) / (prompt_tokens * prompt_tokens))
