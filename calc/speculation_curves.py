"""Speculative decoding against draft length and against the batch, timed by the scenario's own step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calc import format as fmt
from calc import speculative, textbook
from calc.arrays import Numbers, first
from calc.curves import decode_seconds
from calc.errors import InputError
from calc.proof import clock_of
from calc.result import Answer
from calc.scenario import Fidelity
from calc.simulation.requests import RequestTable
from calc.simulation.rules import Speculation, engine_rules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable
from calc.sized import replica_weight_bytes, timing_of
from calc.sizing import BLOCK_TOKENS, mean_context
from calc.worked.formula import Worked

LONGEST_DRAFT = 12
BATCHES = tuple(2**power for power in range(10))
PASSES = 10_000
SIMULATED_TOKENS, FEWEST_SIMULATED_TOKENS = 12_000, 120
"""Tokens of a simulated batch, and of each of its answers at least (a choice: under a percent of noise in the speed-up)."""
ROUNDS_APART_S = 1e5  # longer than any round


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Mean tokens of `passes` simulated passes, and what the formula says of them."""

    drafts: int
    passes: int
    mean: float
    standard_error: float
    formula: float

    @property
    def errors_apart(self) -> float:
        """Distance of the mean from the formula in standard errors; 0 where nothing is left to chance."""
        apart = abs(self.mean - self.formula)
        return apart / self.standard_error if self.standard_error else 0.0


def sampled_tokens_per_pass(*, acceptance: float, seed: int) -> tuple[Sampled, ...]:
    """10,000 simulated passes for each draft length from 0 to twelve."""
    uniforms = np.random.default_rng(seed).random(PASSES)
    found = []
    for drafts in range(LONGEST_DRAFT + 1):
        accepted = speculative.sample_accepted(acceptance=acceptance, drafts=drafts, uniforms=uniforms)
        tokens = 1.0 + np.broadcast_to(np.asarray(accepted, dtype=float), PASSES)
        found.append(
            Sampled(
                drafts=drafts,
                passes=PASSES,
                mean=float(tokens.mean()),
                standard_error=float(tokens.std(ddof=1)) / PASSES**0.5,
                formula=float(speculative.tokens_per_pass(acceptance=acceptance, drafts=drafts)),
            )
        )
    return tuple(found)


def speedup_by_length(
    result: Answer, *, acceptance: float, draft_cost: float, batch: int
) -> tuple[float, ...]:
    """The speed-up at one batch for each draft length from 0 to twelve, with the real cost of checking there."""
    drafts = np.arange(LONGEST_DRAFT + 1)
    pass_s = _pass_seconds(result, np.full(drafts.shape, float(batch)), tokens=drafts + 1.0)
    gains = speculative.speedup_at_batch(
        acceptance=acceptance,
        drafts=drafts[1:],
        step_s=pass_s[0],
        verify_s=pass_s[1:],
        draft_step_s=draft_cost * pass_s[0],
    )
    return (1.0, *np.asarray(gains).tolist())


def worked_drafts(
    result: Answer, *, acceptance: float, draft_cost: float, batch: int, lengths: Sequence[int]
) -> tuple[Worked, ...]:
    """The speed-up at one batch for some draft lengths, with the seconds of its passes."""
    one = np.array([float(batch)])
    step_s = first(_pass_seconds(result, one, tokens=1))
    lines = []
    for drafts in lengths:
        verify_s = first(_pass_seconds(result, one, tokens=drafts + 1))
        inputs = {
            "acceptance": acceptance,
            "drafts": float(drafts),
            "step_s": step_s,
            "verify_s": verify_s,
            "draft_step_s": draft_cost * step_s,
        }
        lines.append(
            Worked(
                formula="speedup_at_batch",
                inputs=inputs,
                result=float(np.asarray(speculative.speedup_at_batch(**inputs))),
                about=f"{fmt.plural(drafts, 'draft')}, batch {batch:,}",
            )
        )
    return tuple(lines)


def simulated_speedups(
    result: Answer, *, acceptance: float, drafts: int, draft_cost: float, batches: tuple[int, ...]
) -> tuple[float, ...]:
    """The speed-up that the serving simulator measures at each batch: tokens a second with the draft over those without.

    The batch starts together and decodes from the traffic's mean context; only passes in which all of it decodes count.
    """
    clock = clock_of(result)
    context = round(mean_context(result.inputs.scenario.workload))
    how = Speculation(drafts=drafts, acceptance=acceptance, draft_step=_draft_clock(clock, draft_cost))
    verifying = clock_of(result, drafts=drafts)
    return tuple(
        _tokens_per_s(verifying, batch, context, how) / _tokens_per_s(clock, batch, context, None)
        for batch in batches
    )


def _draft_clock(clock: StepTable, draft_cost: float) -> StepTable | None:
    return clock.scaled(draft_cost) if draft_cost else None


def _tokens_per_s(clock: StepTable, batch: int, context: int, how: Speculation | None) -> float:
    """Tokens a second of a full batch, from the passes in which all of it decodes.

    Batch after batch, so that contexts stay around the one asked for, however few sequences decode together.
    """
    answer = max(min(SIMULATED_TOKENS // batch, context), FEWEST_SIMULATED_TOKENS)
    prompt = max(1, context - answer // 2)
    rounds = -(-SIMULATED_TOKENS // (batch * answer))
    requests = RequestTable(
        arrival_s=np.repeat(ROUNDS_APART_S * np.arange(rounds), batch),
        input_tokens=np.full(rounds * batch, prompt, dtype=np.int64),
        output_tokens=np.full(rounds * batch, answer, dtype=np.int64),
    )
    rules = engine_rules(
        "vllm",
        num_blocks=batch * (-(-(prompt + answer) // BLOCK_TOKENS) + LONGEST_DRAFT),
        max_seqs=batch,
        token_budget=batch * (prompt + LONGEST_DRAFT + 1),
        speculation=how,
    )
    ran = simulate(requests, rules, clock, compiled=False, log_passes=2 * SIMULATED_TOKENS, log_members=True)
    full = [one for one in ran.log if one.decoding == batch]
    tokens = sum(count for one in full for _, count in one.decoded)
    return tokens / sum(one.end_s - one.start_s for one in full)


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


def _pass_seconds(result: Answer, batch: np.ndarray, *, tokens: float | Numbers) -> Numbers:
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
