"""`Simulation`: sets up the memory of a run, runs it in slices, and hands over what happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from calc.errors import InputError, RidgebeamError
from calc.simulation.cluster import Cluster
from calc.simulation.kernels import layout, loops
from calc.simulation.memory import (
    all_replicas,
    check_requests,
    move_records,
    request_records,
    uses_cache,
)
from calc.simulation.pools import Pool, pools_of
from calc.simulation.requests import RequestTable
from calc.simulation.results import PassRecord, SimulationResult
from calc.simulation.rules import EngineFamily, EngineRules
from calc.simulation.settings import settings_record
from calc.simulation.step_table import StepTable

DEFAULT_SLICE = 100_000  # passes between two looks at progress: about a tenth of a second, compiled

_LOOPS: dict[EngineFamily, Callable[..., int]] = {
    EngineFamily.VLLM: loops.run_mixed,
    EngineFamily.VLLM_V0: loops.run_vllm_v0,
    EngineFamily.SARATHI: loops.run_mixed,
    EngineFamily.ORCA: loops.run_mixed,
    EngineFamily.SGLANG: loops.run_sglang,
    EngineFamily.NANO_VLLM: loops.run_nano_vllm,
    EngineFamily.STATIC: loops.run_static,
}


def _draft_record(pool: Pool) -> Any:
    """The draft's step time; zeros where there is none or it costs nothing."""
    speculation = pool.rules.speculation
    if speculation is None or speculation.draft_step is None:
        record = np.ones(1, layout.TABLE)[0]
        record["prefill_knots"] = record["decode_knots"] = np.arange(layout.MAX_KNOTS)
        record["num_prefill"] = record["num_decode"] = 2
        for name in ("base", "kv_s", "window_s", "attention_s"):
            record[name] = 0
        return record
    return speculation.draft_step.record()


class Cancelled(RidgebeamError):  # noqa: N818 - it is no fault: somebody asked for it
    """The caller asked a run to end before it was done."""


class Simulation:
    """A run that can stop after any slice and go on. The lock is released while compiled loops run.

    skip: jump over equal decode passes; the outcome is the same without, only slower. compiled: False runs the same
    source as plain Python, for reference. log_passes: how many passes to keep for the schedule's trace; log_members:
    with them who was in each, which costs time in proportion to passes x requests.
    """

    def __init__(
        self,
        requests: RequestTable,
        rules: EngineRules,
        step: StepTable,
        *,
        cluster: Cluster | None = None,
        skip: bool = True,
        compiled: bool = True,
        log_passes: int = 0,
        log_members: bool = False,
    ) -> None:
        self.table, self.rules, self.step = requests, rules, step
        self.cluster = cluster or Cluster()
        self.cached = uses_cache(requests, rules)
        self.pools = pools_of(rules, step, self.cluster)
        for pool in self.pools:
            check_requests(requests, pool)
        settings = np.array(
            [settings_record(requests, pool, self.cluster, skip=skip) for pool in self.pools], layout.SETTINGS
        )
        self._requests = request_records(requests, rules)
        self._requests["arrival"] += (
            self.cluster.server_s
        )  # when a scheduler sees it; `arrival_s` takes it off again
        self._requests["think"] += self.cluster.server_s
        self._replicas = all_replicas(requests, self.pools, settings)
        self._runs = layout.Runs(
            settings,
            np.zeros(1, layout.WORLD)[0],
            np.array([pool.step.record() for pool in self.pools], layout.TABLE),
            np.array([_draft_record(pool) for pool in self.pools], layout.TABLE),
            move_records(requests, needed=len(self.pools) > 1 or any(one["tiers"] for one in settings)),
        )
        self._loop = _LOOPS[rules.family]
        if compiled:
            from calc.simulation.compiled import compiled as compile_kernel

            self._loop = compile_kernel(self._loop)
        self._log_passes, self._log_members = log_passes, log_members
        self._generated = np.zeros(len(requests), np.int64)
        self._log: list[PassRecord] = []
        self._passes_seen = np.zeros(len(self._replicas.state), np.int64)
        self.done = False

    def _keep_pass(self) -> None:
        """Note what the last pass was."""
        state = self._replicas.state
        for replica in np.flatnonzero(state["passes"] != self._passes_seen):
            one = state[replica]
            self._passes_seen[replica] = one["passes"]
            chunks, decoded = self._members(int(replica)) if self._log_members else ((), ())
            self._log.append(
                PassRecord(
                    replica=int(replica),
                    start_s=float(one["pass_start_s"]),
                    end_s=float(one["now"]),
                    steps=int(one["pass_steps"]),
                    prefill_tokens=int(one["pass_prefill"]),
                    decoding=int(one["pass_decoding"]),
                    running=int(one["running"]),
                    waiting=int(one["waiting"]),
                    used_blocks=int(self.pools[one["pool"]].rules.num_blocks - one["free"]),
                    chunks=chunks,
                    decoded=decoded,
                )
            )

    def _members(self, replica: int) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """Who was in the last pass of a replica: (request, prompt tokens), and (request, tokens) of who decoded."""
        lists = self._replicas.lists[replica]
        count = int(self._replicas.state["pass_chunks"][replica])
        prompts = lists[layout.CHUNK_REQUEST, :count].tolist()
        tokens = lists[layout.CHUNK_TOKENS, :count].tolist()
        records = self._requests
        on = np.maximum(records["replica"], 0)
        decoding = records["output"] - (records["due"] - self._replicas.state["tick"][on])
        before = records["target"] - records["input"]
        told = {layout.DECODE: decoding, layout.DONE: records["output"], layout.PARKED: records["due"]}
        told[layout.SWAPPED] = before + 1
        told[layout.MOVING] = np.maximum(before, records["first"] >= 0)
        generated = np.select([records["state"] == state for state in told], list(told.values()), before)
        more = generated - self._generated
        grown = np.flatnonzero((more > 0) & (records["replica"] == replica))
        self._generated = np.maximum(generated, self._generated)
        decoded = tuple((int(i), int(more[i])) for i in grown if i not in prompts)
        return tuple(zip(prompts, tokens, strict=True)), decoded

    @property
    def progress(self) -> float:
        """Share of the requests that have finished."""
        return float(self._runs.world["done"]) / len(self.table)

    def advance(self, passes: int = DEFAULT_SLICE) -> bool:
        """Run up to `passes` passes; True when all requests have finished."""
        if not self.done and self._log_passes > len(self._log):
            passes = 1
        if not self.done:
            outcome = self._loop(self._requests, self._replicas, self._runs, passes)
            if outcome == loops.HOST_FULL:
                raise InputError(
                    "swap",
                    self.rules.swap.num_blocks if self.rules.swap else 0,
                    "the host has no room for a group of samples, which cannot be computed anew",
                    next_step="Give it more memory, or the card more blocks.",
                )
            if outcome == loops.STUCK:
                raise RuntimeError(
                    "a replica has requests but can run none of them: the scheduling rules are broken"
                )
            self.done = outcome == loops.FINISHED
            if passes == 1 and not self.done:
                self._keep_pass()
        return self.done

    def arrival_s(self, records: Any) -> Any:
        """When the requests of some records were sent: before their time in the server."""
        return records["arrival"] - self.cluster.server_s

    def violators(self, ttft_s: float, tpot_s: float, e2e_s: float) -> int:
        """Finished requests so far that missed one of the limits (infinite: no limit)."""
        records = self._requests
        done = records[records["state"] == layout.DONE]
        gaps = np.maximum(done["output"] - 1, 1)
        arrival_s = self.arrival_s(done)
        late = (done["first"] - arrival_s > ttft_s) | (done["last"] - arrival_s > e2e_s)
        late |= (done["last"] - done["first"]) / gaps > tpot_s
        return int(np.count_nonzero(late))

    def result(self) -> SimulationResult:
        """What happened; the run must be done."""
        if not self.done:
            raise InputError("simulation", f"{self.progress:.0%} done", "it must have run to its end")
        return SimulationResult.read(self)


def simulate(
    requests: RequestTable,
    rules: EngineRules,
    step: StepTable,
    *,
    cluster: Cluster | None = None,
    skip: bool = True,
    compiled: bool = True,
    log_passes: int = 0,
    log_members: bool = False,
    progress: Callable[[float], bool] | None = None,
) -> SimulationResult:
    """Run to the end. `progress` is told the share done after each slice; if it returns False, `Cancelled` is raised."""
    run = Simulation(
        requests,
        rules,
        step,
        cluster=cluster,
        skip=skip,
        compiled=compiled,
        log_passes=log_passes,
        log_members=log_members,
    )
    while not run.advance():
        if progress is not None and not progress(run.progress):
            raise Cancelled(f"The simulation was stopped at {run.progress:.0%}.")
    return run.result()
