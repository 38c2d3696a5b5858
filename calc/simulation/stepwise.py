"""A run watched pass by pass: who computes a part of its prompt, who gains a token, who is done and holds its slot.

The passes are the run's own log. A leap over equal passes is spelt out into them, because who decodes does not change
within it; so is a static batch, which the log keeps as one record. For few requests, to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from calc.errors import InputError
from calc.simulation.cluster import Cluster
from calc.simulation.kernels.clock import leap_seconds, step_seconds
from calc.simulation.requests import RequestTable
from calc.simulation.results import PassRecord, SimulationResult
from calc.simulation.rules import EngineFamily, EngineRules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable

MOST_PASSES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPass:
    """One pass of a replica. `prefilling`: (request, prompt tokens computed); `decoding`: requests that gained a token.

    `finished_prompts`: those of `prefilling` whose prompt is complete, so that their first token came out. `padded`:
    requests that are done and hold their slot to the end of a static batch.
    """

    replica: int
    start_s: float
    end_s: float
    prefilling: tuple[tuple[int, int], ...]
    finished_prompts: tuple[int, ...]
    decoding: tuple[int, ...]
    padded: tuple[int, ...] = ()

    @property
    def prefill_tokens(self) -> int:
        return sum(tokens for _, tokens in self.prefilling)

    @property
    def members(self) -> tuple[int, ...]:
        """Requests that hold a slot for something in this pass."""
        return (*(request for request, _ in self.prefilling), *self.decoding, *self.padded)


def watch(
    requests: RequestTable,
    rules: EngineRules,
    step: StepTable,
    *,
    cluster: Cluster | None = None,
    skip: bool = True,
) -> tuple[tuple[WatchedPass, ...], SimulationResult]:
    """Every pass of a run in order of time, and its result.

    Refuses a run of more than `MOST_PASSES` passes, and one in which a request was preempted. Plain Python: few
    requests are done before machine code would be compiled. `skip`: whether the run may leap; the passes are the same.
    """
    result = simulate(
        requests,
        rules,
        step,
        cluster=cluster,
        skip=skip,
        compiled=False,
        log_passes=MOST_PASSES,
        log_members=True,
    )
    if result.preemptions:
        raise InputError(
            "num_blocks",
            rules.num_blocks,
            "a run with preemptions is not spelt out into passes",
            next_step="Give more blocks, or export the schedule of the run as a trace.",
        )
    spelt = _static_passes if rules.family is EngineFamily.STATIC else _logged_passes
    passes: list[WatchedPass] = []
    for more in spelt(result, step):
        passes += more
        if len(passes) >= MOST_PASSES:
            raise InputError("passes", len(passes), f"fewer than {MOST_PASSES:,} can be watched")
    return tuple(sorted(passes, key=lambda one: one.start_s)), result


def _logged_passes(result: SimulationResult, step: StepTable) -> Iterator[list[WatchedPass]]:
    """The passes of each record of the log: one, or those of a leap."""
    table = step.record()
    inputs = result.input_tokens.tolist()
    computed = [0] * len(inputs)
    said = [0] * len(inputs)
    for one in result.log:
        complete = []
        for request, tokens in one.chunks:
            computed[request] += tokens
            if computed[request] + int(result.cached_tokens[request]) >= inputs[request]:
                complete.append(request)
        names = tuple(request for request, _ in one.decoded)
        attended = [inputs[request] + said[request] for request in names]
        ends = _leap_ends(one, table, attended, step.window)
        yield [
            WatchedPass(
                replica=one.replica,
                start_s=start_s,
                end_s=end_s,
                prefilling=one.chunks,
                finished_prompts=tuple(complete),
                decoding=names,
            )
            for start_s, end_s in zip([one.start_s, *ends], ends, strict=False)
        ]
        for request, tokens in (*one.decoded, *((request, 1) for request in complete)):
            said[request] += tokens


def _leap_ends(one: PassRecord, table: Any, attended: list[int], window: int) -> list[float]:
    """When each pass of a record ends; `attended`: the tokens that each decoding request reads in the first of them."""
    if one.steps == 1:
        return [one.end_s]
    below = sum(tokens < window for tokens in attended)
    first_s = step_seconds(
        table, 0, 0.0, len(attended), sum(attended), sum(min(tokens, window) for tokens in attended)
    )
    growth_s = float(len(attended) * table["kv_s"] + below * table["window_s"])
    return [one.start_s + leap_seconds(first_s, growth_s, n) for n in range(1, one.steps + 1)]


def _static_passes(result: SimulationResult, step: StepTable) -> Iterator[list[WatchedPass]]:
    """Each batch: its prompts, padded to the longest, then tokens until the longest answer ends."""
    for moment in np.unique(result.scheduled_s):
        batch = tuple(np.flatnonzero(result.scheduled_s == moment).tolist())
        yield list(_batch_passes(result, step, batch))


def _batch_passes(result: SimulationResult, step: StepTable, batch: tuple[int, ...]) -> Iterator[WatchedPass]:
    inputs, answers = result.input_tokens[list(batch)].tolist(), result.output_tokens[list(batch)].tolist()
    table, slots, prompt = step.record(), len(batch), max(inputs)
    now = float(result.first_s[batch[0]])
    yield WatchedPass(
        replica=0,
        start_s=float(result.scheduled_s[batch[0]]),
        end_s=now,
        prefilling=tuple(zip(batch, inputs, strict=True)),
        finished_prompts=batch,
        decoding=(),
    )
    for said in range(1, max(answers)):
        attended = prompt + said
        window = slots * min(attended, step.window)
        end = now + step_seconds(table, 0, 0.0, slots, slots * attended, window)
        yield WatchedPass(
            replica=0,
            start_s=now,
            end_s=end,
            prefilling=(),
            finished_prompts=(),
            decoding=tuple(request for request, answer in zip(batch, answers, strict=True) if answer > said),
            padded=tuple(request for request, answer in zip(batch, answers, strict=True) if answer <= said),
        )
        now = end
