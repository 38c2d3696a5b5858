"""A recorded run of a real engine, played again: the simulator is given each pass's measured seconds, and decides the rest.

Every pass that the simulator makes is told how long the recorded one took, so that both see the same arrivals at the same
moments. What it decides (who is admitted, how long each chunk is, who decodes, who is preempted, how many blocks are
held) is then set beside what the engine did, pass by pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from calc.errors import InputError
from calc.simulation.kernels import layout
from calc.simulation.requests import RequestTable
from calc.simulation.results import SimulationResult
from calc.simulation.rules import EngineFamily, EngineRules
from calc.simulation.run import Simulation
from calc.simulation.step_table import FAR, StepTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What one pass did. Requests by their number in the table; `running`, `waiting` and `free_blocks` as it left them.

    chunks: (request, prompt tokens), in order of admission. decoded: rising. preempted: rising, each as often as it was.
    """

    chunks: tuple[tuple[int, int], ...]
    decoded: tuple[int, ...]
    preempted: tuple[int, ...]
    running: int
    waiting: int
    free_blocks: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """The simulated run, its decisions, and the number of the first pass in which they differ (None: in none)."""

    result: SimulationResult
    decisions: tuple[Decisions, ...]
    recorded: tuple[Decisions, ...]

    @property
    def first_difference(self) -> int | None:
        """The first pass that was decided differently; a missing pass counts."""
        for place, (ours, theirs) in enumerate(zip(self.decisions, self.recorded, strict=False)):
            if ours != theirs:
                return place
        shorter, longer = sorted((len(self.decisions), len(self.recorded)))
        return None if shorter == longer else shorter


def constant_step(seconds: float) -> StepTable:
    """A step table that says `seconds` for every pass."""
    return StepTable(
        prefill_knots=(0.0, FAR), decode_knots=(0.0, FAR), base_s=((seconds, seconds), (seconds, seconds))
    )


def replay(
    requests: RequestTable,
    rules: EngineRules,
    *,
    pass_s: Sequence[float],
    recorded: Iterable[Decisions],
    compiled: bool = True,
) -> Replay:
    """Simulate `requests` with pass number n taking `pass_s[n]` seconds; passes beyond the record take the last one's.

    One replica, without leaps. Raises InputError for static batching, whose passes are whole batches.
    Source: the engine's own record. Ignores: nothing that the record holds.
    """
    if rules.family is EngineFamily.STATIC:
        raise InputError("engine rules", str(rules.family), "one pass of a static batch is the whole batch")
    if len(pass_s) == 0:
        raise InputError("pass_s", 0, "a record has at least one pass")
    run = Simulation(requests, rules, constant_step(pass_s[0]), skip=False, compiled=compiled)
    records, replicas, shared = run._requests, run._replicas, run._run  # noqa: SLF001 - it plays the run from inside
    state = replicas.state[0]
    decisions: list[Decisions] = []
    while True:
        shared.table["base"][:] = pass_s[min(len(decisions), len(pass_s) - 1)]
        made = int(state["passes"])
        preempted, emitted = records["preemptions"].copy(), _decoding(records)
        done = run.advance(1)
        if int(state["passes"]) > made:
            decisions.append(_decisions(run, preempted, emitted))
        if done:
            break
    return Replay(result=run.result(), decisions=tuple(decisions), recorded=tuple(recorded))


def _decoding(records: layout.Requests) -> set[int]:
    return set(np.flatnonzero(records["state"] == layout.DECODE).tolist())


def _decisions(run: Simulation, preempted: layout.Array, decoding: set[int]) -> Decisions:
    """Read the pass that has just ended off the replica: its chunks, and who of the decoding ones got a token."""
    records, replicas = run._requests, run._replicas  # noqa: SLF001 - the same
    state, lists = replicas.state[0], replicas.lists[0]
    chunks, left = [], int(state["pass_prefill"])
    while left > 0:
        place = len(chunks)
        chunk = int(lists[layout.CHUNK_REQUEST, place]), int(lists[layout.CHUNK_TOKENS, place])
        chunks.append(chunk)
        left -= chunk[1]
    times = records["preemptions"] - preempted
    lost = np.repeat(np.arange(len(times)), times)
    decoded: set[int] = set()
    if state["pass_decoding"]:
        decoded = decoding - set(lost.tolist()) - set(np.flatnonzero(records["late"] >= 0).tolist())
    return Decisions(
        chunks=tuple(chunks),
        decoded=tuple(sorted(decoded)),
        preempted=tuple(lost.tolist()),
        running=int(state["running"]),
        waiting=int(state["waiting"]),
        free_blocks=int(state["free"]),
    )
