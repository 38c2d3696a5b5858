"""Speculative decoding against draft length and against the batch, timed by the scenario's own step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calc import speculative, textbook
from calc.answer import Answer, replica_weight_bytes, timing_of
from calc.arrays import Numbers
from calc.curves import decode_seconds
from calc.errors import InputError
from calc.scenario import Fidelity
from calc.sizing import mean_context

LONGEST_DRAFT = 12
BATCHES = tuple(2**power for power in range(10))
PASSES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCurve:
    """Tokens per target pass and speed-up at batch 1 for each draft length; `best` has the highest speed-up."""

    drafts: tuple[int, ...]
    tokens_per_pass: tuple[float, ...]
    speedup: tuple[float, ...]
    best: int


def draft_curve(*, acceptance: float, draft_cost: float) -> DraftCurve:
    """From no draft to twelve tokens, where checking costs no more than one token's pass."""
    drafts = np.arange(LONGEST_DRAFT + 1)
    gain = np.asarray(speculative.speedup(acceptance=acceptance, drafts=drafts, draft_cost=draft_cost))
    tokens = np.asarray(speculative.tokens_per_pass(acceptance=acceptance, drafts=drafts))
    return DraftCurve(
        drafts=tuple(drafts.tolist()),
        tokens_per_pass=tuple(tokens.tolist()),
        speedup=tuple(gain.tolist()),
        best=speculative.best_draft_length(
            acceptance=acceptance, draft_cost=draft_cost, longest=LONGEST_DRAFT
        ),
    )


def sampled_tokens_per_pass(*, acceptance: float, seed: int) -> tuple[float, ...]:
    """The mean tokens of 10,000 simulated passes for each draft length from 0 to twelve."""
    uniforms = np.random.default_rng(seed).random(PASSES)
    return tuple(
        1.0
        + float(np.mean(speculative.sample_accepted(acceptance=acceptance, drafts=drafts, uniforms=uniforms)))
        for drafts in range(LONGEST_DRAFT + 1)
    )


def speedup_by_batch(
    result: Answer, *, acceptance: float, drafts: int, draft_cost: float
) -> tuple[float, ...]:
    """The speed-up at each of `BATCHES`, where a pass that checks drafts has its real cost at that batch.

    A draft pass costs `draft_cost` of the target's pass at the same batch.
    """
    if drafts < 1:
        raise InputError("drafts", drafts, "at least one token is drafted")
    batch = np.array(BATCHES, dtype=float)
    step_s = _pass_seconds(result, batch, tokens=1)
    verify_s = _pass_seconds(result, batch, tokens=drafts + 1)
    gain = speculative.speedup_at_batch(
        acceptance=acceptance,
        drafts=drafts,
        step_s=step_s,
        verify_s=verify_s,
        draft_step_s=draft_cost * step_s,
    )
    return tuple(np.asarray(gain, dtype=float).tolist())


def _pass_seconds(result: Answer, batch: np.ndarray, *, tokens: int) -> Numbers:
    """Seconds of a target pass in which each sequence enters with `tokens` tokens, best estimate."""
    context = mean_context(result.inputs.scenario.workload)
    if result.inputs.scenario.fidelity != Fidelity.TEXTBOOK:
        return np.asarray(
            decode_seconds(result, result.inputs.scenario.fidelity, context, tokens=tokens)(batch).best
        )
    timing = timing_of(result.inputs, result.layout, replica_weight_bytes(result.inputs))
    memory_s = np.asarray(timing.decode_s(batch=batch, context_tokens=context).best)
    compute_s = textbook.decode_compute_s(
        params=timing.active_parameters, batch=batch * tokens, peak_flop_per_s=timing.peak_flop_per_s
    )
    return np.maximum(memory_s, compute_s)
