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
from calc.simulation.requests import RequestTable
from calc.simulation.results import PassRecord, SimulationResult
from calc.simulation.rules import MAX_COUNT, EngineFamily, EngineRules
from calc.simulation.run import Simulation
from calc.simulation.step_table import StepTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What one pass did. Requests by their number in the table; `running`, `waiting` and `used_blocks` as it left them.

    chunks: (request, prompt tokens), in order of admission. decoded: rising. preempted: rising, each as often as it was.
    """

    chunks: tuple[tuple[int, int], ...]
    decoded: tuple[int, ...]
    preempted: tuple[int, ...]
    running: int
    waiting: int
    used_blocks: int


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
    run = Simulation(
        requests,
        rules,
        StepTable.affine(fixed_s=pass_s[0], prefill_s=0.0, decode_s=0.0, kv_s=0.0),
        skip=False,
        compiled=compiled,
        log_passes=MAX_COUNT,
        log_members=True,
    )
    records, tables = run._requests, run._runs.table  # noqa: SLF001 - it plays the run from inside
    preempted: list[tuple[int, ...]] = []
    done = False
    while not done:
        tables["base"][:] = pass_s[min(len(preempted), len(pass_s) - 1)]
        before = records["preemptions"].copy()
        done = run.advance(1)
        times = records["preemptions"] - before
        preempted.append(tuple(np.repeat(np.arange(len(times)), times).tolist()))
    result = run.result()
    decisions = tuple(map(_decisions, result.log, preempted))
    return Replay(result=result, decisions=decisions, recorded=tuple(recorded))


def _decisions(one: PassRecord, preempted: tuple[int, ...]) -> Decisions:
    return Decisions(
        chunks=one.chunks,
        decoded=tuple(sorted(request for request, _ in one.decoded)),
        preempted=preempted,
        running=one.running,
        waiting=one.waiting,
        used_blocks=one.used_blocks,
    )
