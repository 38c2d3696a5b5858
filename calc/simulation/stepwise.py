"""A run watched pass by pass: who computes a part of its prompt, who gains a token, who holds its place idle.

The same loops as `simulate`, one pass or leap at a time; a leap over equal passes is spelt out into them, because who
decodes does not change within it. For one replica and few requests, to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calc.errors import InputError
from calc.simulation.kernels import layout
from calc.simulation.kernels.clock import leap_seconds, step_seconds
from calc.simulation.requests import Ints, RequestTable
from calc.simulation.results import SimulationResult
from calc.simulation.rules import EngineFamily, EngineRules
from calc.simulation.run import Simulation
from calc.simulation.step_table import StepTable

MOST_PASSES = 20_000

Chosen = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPass:
    """One pass. `prefilling`: (request, prompt tokens computed); `decoding`: requests that gained a token they waited for.

    `finished_prompts`: those of `prefilling` whose prompt is complete, so that their next token came out. `padded`:
    requests that are done and hold their slot to the end of a static batch. `holding`: requests that have been
    admitted and computed nothing in this pass.
    """

    start_s: float
    end_s: float
    prefilling: tuple[tuple[int, int], ...]
    finished_prompts: tuple[int, ...]
    decoding: tuple[int, ...]
    padded: tuple[int, ...]
    holding: tuple[int, ...]

    @property
    def prefill_tokens(self) -> int:
        return sum(tokens for _, tokens in self.prefilling)

    @property
    def places(self) -> tuple[int, ...]:
        """Requests that hold a slot during the pass, in the order of the table."""
        computed = tuple(request for request, _ in self.prefilling)
        return tuple(sorted((*computed, *self.decoding, *self.padded, *self.holding)))


def watch(
    requests: RequestTable, rules: EngineRules, step: StepTable, *, skip: bool = True
) -> tuple[tuple[WatchedPass, ...], SimulationResult]:
    """Every pass of a run on one replica, and its result; refuses a run of more than `MOST_PASSES` passes.

    Plain Python: few requests are done before machine code would be compiled. `skip`: whether the run may leap; the
    passes are the same.
    """
    run = Simulation(requests, rules, step, skip=skip, compiled=False)
    if rules.family is EngineFamily.STATIC:
        batches = _static_batches(run)
        return tuple(one for batch in batches for one in _static_passes(run, batch)), run.result()
    passes: list[WatchedPass] = []
    for more in _mixed_passes(run):
        passes += more
        if len(passes) > MOST_PASSES:
            raise InputError("passes", len(passes), f"at most {MOST_PASSES:,} can be watched")
    return tuple(passes), run.result()


def _mixed_passes(run: Simulation) -> Iterator[list[WatchedPass]]:
    """The passes of each move of the run: one, or those of a leap."""
    computed, said = _standing(run)
    while True:
        state = run._replicas.state[0]  # noqa: SLF001 - the run's own reader
        before = int(state["passes"])
        reads = (int(state["decoding"]), int(state["kv_tokens"]), int(state["window_tokens"]))
        below_window = int(state["below_window"])
        if run.advance(1):
            return
        if int(state["passes"]) == before:
            continue
        now_computed, now_said = _standing(run)
        gained = now_said > said
        if state["pass_steps"] > 1:
            yield _spelt_out(run, gained, reads, below_window)
        else:
            yield [_one_pass(run, now_computed - computed, gained)]
        computed, said = now_computed, now_said


def _one_pass(run: Simulation, chunk: Ints, gained: Chosen) -> WatchedPass:
    state, kept = run._replicas.state[0], run._requests["state"]  # noqa: SLF001 - the run's own reader
    fresh = chunk > 0
    admitted = (kept == layout.PREFILL) | (kept == layout.DECODE) | (kept == layout.PARKED)
    return WatchedPass(
        start_s=float(state["pass_start_s"]),
        end_s=float(state["now"]),
        prefilling=tuple((request, int(chunk[request])) for request in _numbers(fresh)),
        finished_prompts=_numbers(fresh & gained),
        decoding=_numbers(gained & ~fresh),
        padded=(),
        holding=_numbers(admitted & ~(fresh | gained)),
    )


def _spelt_out(
    run: Simulation, gained: Chosen, reads: tuple[int, int, int], below_window: int
) -> list[WatchedPass]:
    """The equal decode passes of a leap; `reads`: decoding sequences, tokens and window tokens that its first attends to."""
    state, table = run._replicas.state[0], run.step.record()  # noqa: SLF001 - the run's own reader
    decoding, tokens, window_tokens = reads
    first_s = step_seconds(table, 0, 0.0, decoding, tokens, window_tokens)
    growth_s = float(decoding * table["kv_s"] + below_window * table["window_s"])
    start_s, names = float(state["pass_start_s"]), _numbers(gained)
    ends = [start_s + leap_seconds(first_s, growth_s, n) for n in range(int(state["pass_steps"]) + 1)]
    return [_decode_pass(ends[n], ends[n + 1], names) for n in range(len(ends) - 1)]


def _decode_pass(
    start_s: float, end_s: float, decoding: tuple[int, ...], padded: tuple[int, ...] = ()
) -> WatchedPass:
    return WatchedPass(
        start_s=start_s,
        end_s=end_s,
        prefilling=(),
        finished_prompts=(),
        decoding=decoding,
        padded=padded,
        holding=(),
    )


def _standing(run: Simulation) -> tuple[Ints, Ints]:
    """(prompt tokens computed, answer tokens said) of each request as the run stands."""
    records = run._requests  # noqa: SLF001 - the run's own reader
    said = np.maximum(0, records["target"] - records["input"]).astype(np.int64)
    decodes = records["state"] == layout.DECODE
    left = records["due"] - int(run._replicas.state[0]["tick"])  # noqa: SLF001 - the same
    said = np.where(decodes, records["output"] - left, said)
    said = np.where(records["state"] == layout.DONE, records["output"], said)
    return records["computed"].astype(np.int64), said


def _static_batches(run: Simulation) -> list[tuple[int, ...]]:
    """Run to the end; the requests that ran together, in order of time."""
    while not run.advance():
        pass
    begun = run.result().scheduled_s
    return [_numbers(begun == moment) for moment in np.unique(begun)]


def _static_passes(run: Simulation, batch: tuple[int, ...]) -> Iterator[WatchedPass]:
    """The passes of one batch: its prompts, padded to the longest, then tokens until the longest answer ends."""
    result, table = run.result(), run.step.record()
    inputs, answers = result.input_tokens[list(batch)].tolist(), result.output_tokens[list(batch)].tolist()
    slots, prompt = len(batch), max(inputs)
    now = float(result.first_s[batch[0]])
    yield WatchedPass(
        start_s=float(result.scheduled_s[batch[0]]),
        end_s=now,
        prefilling=tuple(zip(batch, inputs, strict=True)),
        finished_prompts=batch,
        decoding=(),
        padded=(),
        holding=(),
    )
    for said in range(1, max(answers)):
        attended = prompt + said
        window = slots * min(attended, run.step.window)
        end = now + step_seconds(table, 0, 0.0, slots, slots * attended, window)
        decoding = tuple(request for request, answer in zip(batch, answers, strict=True) if answer > said)
        padded = tuple(request for request, answer in zip(batch, answers, strict=True) if answer <= said)
        yield _decode_pass(now, end, decoding, padded)
        now = end


def _numbers(chosen: Chosen) -> tuple[int, ...]:
    return tuple(np.flatnonzero(chosen).tolist())
