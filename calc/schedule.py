"""The same few requests under several schedulers, slot by slot: what a Gantt chart of serving shows.

Every schedule is a run of the serving simulator, watched pass by pass (`calc.simulation.stepwise`); here its passes
become bars in slots, and the numbers that tell schedulers apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from calc.errors import InputError
from calc.simulation.cluster import Cluster
from calc.simulation.disaggregation import PrefillPool
from calc.simulation.link import Link
from calc.simulation.requests import RequestTable
from calc.simulation.results import SimulationResult
from calc.simulation.rules import MAX_COUNT, EngineRules, engine_rules
from calc.simulation.step_table import StepTable
from calc.simulation.stepwise import WatchedPass, watch
from calc.sizing import BLOCK_TOKENS
from calc.units import US

MOST_SLOTS = 16
SAME_MOMENT_S = 1e-9  # two sums of the same step times differ by rounding
DECODE_REPLICA = 1  # where prompts are computed apart, by replica 0
STALLED = 3.0
"""Times the median pass from which a gap between tokens is called a stall (a choice: a reader sees a threefold gap)."""


class Scheduling(StrEnum):
    """Ways to share engines between requests."""

    STATIC = "static"
    CONTINUOUS = "continuous"
    CHUNKED = "chunked prefill"
    DISAGGREGATED = "disaggregated"


class Activity(StrEnum):
    """What a request does with its place."""

    PREFILL = "prompt"
    TRANSFER = "cache on the link"
    DECODE = "answer"
    HOLD = "admitted, not computed"
    PADDING = "done, slot held"


class Lane(StrEnum):
    """Where a bar lies: slots of the engine, or of the two engines and the link where prompts are computed apart."""

    SLOTS = "slots"
    PREFILL = "prefill engine"
    LINK = "link"
    DECODE = "decode engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of equal passes of one request in one slot of a lane."""

    request: int
    lane: Lane
    slot: int
    activity: Activity
    start_s: float
    end_s: float
    passes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The longest time that a running answer went without a token, and whose it was."""

    request: int
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """One scheduler's run: its passes, the bars that they make, and the simulator's own result."""

    scheduling: Scheduling
    slots: int
    passes: tuple[WatchedPass, ...]
    bars: tuple[Bar, ...]
    stall: Stall | None
    result: SimulationResult

    @property
    def lanes(self) -> tuple[tuple[Lane, int], ...]:
        """The lanes from top to bottom, each with its slots."""
        if self.scheduling is Scheduling.DISAGGREGATED:
            return ((Lane.PREFILL, self.slots), (Lane.LINK, 1), (Lane.DECODE, self.slots))
        return ((Lane.SLOTS, self.slots),)

    @property
    def answering(self) -> tuple[WatchedPass, ...]:
        """The passes of the engine that decodes."""
        if self.scheduling is Scheduling.DISAGGREGATED:
            return tuple(one for one in self.passes if one.replica == DECODE_REPLICA)
        return self.passes

    @property
    def slot_steps(self) -> int:
        """Slots times passes of the engine that decodes: what there was to use."""
        return self.slots * len(self.answering)

    @property
    def useful_slot_steps(self) -> int:
        """Slot-steps of that engine in which a request gained a token or computed a part of its prompt."""
        return sum(len(one.decoding) + len(one.prefilling) for one in self.answering)

    @property
    def slot_use(self) -> float:
        """Share of the slot-steps that did useful work; time without any request is no step."""
        return self.useful_slot_steps / self.slot_steps if self.slot_steps else 0.0

    @property
    def stalls(self) -> bool:
        """Whether a running answer waited for far longer than answers usually do."""
        if self.stall is None:
            return False
        usual = float(np.median([one.end_s - one.start_s for one in self.answering]))
        return self.stall.seconds > STALLED * usual

    @property
    def mean_wait_s(self) -> float:
        """From arrival to the first work on the prompt."""
        return float((self.result.scheduled_s - self.result.arrival_s).mean())

    @property
    def mean_second_token_s(self) -> float | None:
        """From the first token to the second, where a moved request waits for its cache; None if no answer has two."""
        said: dict[int, list[float]] = {}
        for one in self.passes:
            for request in (*one.finished_prompts, *one.decoding):
                said.setdefault(request, []).append(one.end_s)
        gaps = [times[1] - times[0] for times in said.values() if len(times) > 1]
        return float(np.mean(gaps)) if gaps else None

    @property
    def end_s(self) -> float:
        return float(self.result.last_s.max())

    def waiting(self) -> tuple[int, ...]:
        """Requests that have arrived and wait for their first admission at the end of each pass."""
        ends = np.array([one.end_s for one in self.passes])
        came = np.searchsorted(np.sort(self.result.arrival_s), ends, side="right")
        begun = np.searchsorted(np.sort(self.result.scheduled_s), ends, side="left")
        return tuple((came - begun).tolist())


def schedule(
    scheduling: Scheduling,
    requests: RequestTable,
    step: StepTable,
    *,
    slots: int,
    token_budget: int,
    link: Link | None = None,
) -> Schedule:
    """Run the requests on one engine with `slots` slots; `token_budget`: tokens a pass where prompts are cut.

    Disaggregated: on two such engines, whole prompts on the first, answers on the second, caches over `link`. The KV
    pool holds all of them: what happens when it is not is another page's subject.
    """
    cluster = None
    rules = _rules(scheduling, requests, slots=slots, token_budget=token_budget)
    if scheduling is Scheduling.DISAGGREGATED:
        if link is None:
            raise InputError("link", None, "prompts that are computed apart need a link for their caches")
        cluster = Cluster(prefill=PrefillPool(link=link, rules=rules, step=step))
    passes, result = watch(requests, rules, step, cluster=cluster)
    return Schedule(
        scheduling=scheduling,
        slots=slots,
        passes=passes,
        bars=_all_bars(scheduling, passes, result),
        stall=longest_stall(passes),
        result=result,
    )


def _rules(scheduling: Scheduling, requests: RequestTable, *, slots: int, token_budget: int) -> EngineRules:
    each = requests.input_tokens + requests.output_tokens
    padded = int(requests.input_tokens.max() + requests.output_tokens.max())
    num_blocks = int(max((-(-each // BLOCK_TOKENS)).sum(), slots * -(-padded // BLOCK_TOKENS))) + 1
    if scheduling is Scheduling.STATIC:
        return engine_rules("static", num_blocks=num_blocks, batch_size=slots, batch_timeout_s=0.0)
    if scheduling is Scheduling.CHUNKED:
        budget = max(token_budget, slots)
        return engine_rules("vllm", num_blocks=num_blocks, max_seqs=slots, token_budget=budget)
    return engine_rules(
        "vllm", num_blocks=num_blocks, max_seqs=slots, token_budget=MAX_COUNT, chunked_prefill=False
    )


def _all_bars(
    scheduling: Scheduling, passes: tuple[WatchedPass, ...], result: SimulationResult
) -> tuple[Bar, ...]:
    if scheduling is not Scheduling.DISAGGREGATED:
        return bars_of(passes, Lane.SLOTS)
    moved = np.flatnonzero(~np.isnan(result.sent_s)).tolist()
    transfers = tuple(
        Bar(
            request=request,
            lane=Lane.LINK,
            slot=0,
            activity=Activity.TRANSFER,
            start_s=float(result.sent_s[request]),
            end_s=float(result.landed_s[request]),
            passes=1,
        )
        for request in moved
    )
    on = {replica: tuple(one for one in passes if one.replica == replica) for replica in (0, DECODE_REPLICA)}
    return (*bars_of(on[0], Lane.PREFILL), *transfers, *bars_of(on[DECODE_REPLICA], Lane.DECODE))


def bars_of(passes: tuple[WatchedPass, ...], lane: Lane) -> tuple[Bar, ...]:
    """Each request from its first pass to its last in the lowest slot that was free; equal passes in a row are one bar."""
    stretches: dict[int, list[tuple[Activity, float, float, int]]] = {}
    for one in passes:
        for request, activity in _activities(one):
            mine = stretches.setdefault(request, [])
            if mine and mine[-1][2] < one.start_s:
                mine.append((Activity.HOLD, mine[-1][2], one.start_s, 1))
            if mine and mine[-1][0] is activity:
                mine[-1] = (activity, mine[-1][1], one.end_s, mine[-1][3] + 1)
            else:
                mine.append((activity, one.start_s, one.end_s, 1))
    bars: list[Bar] = []
    free_from: list[float] = []
    for request, mine in sorted(stretches.items(), key=lambda item: (item[1][0][1], item[0])):
        begun, ended = mine[0][1], mine[-1][2]
        free = [slot for slot, until in enumerate(free_from) if until <= begun + SAME_MOMENT_S]
        slot = free[0] if free else len(free_from)
        free_from[slot : slot + 1] = [ended]
        bars += [
            Bar(
                request=request,
                lane=lane,
                slot=slot,
                activity=activity,
                start_s=start_s,
                end_s=end_s,
                passes=count,
            )
            for activity, start_s, end_s, count in mine
        ]
    return tuple(bars)


def _activities(one: WatchedPass) -> Iterator[tuple[int, Activity]]:
    yield from ((request, Activity.PREFILL) for request, _ in one.prefilling)
    yield from ((request, Activity.DECODE) for request in one.decoding)
    yield from ((request, Activity.PADDING) for request in one.padded)


def longest_stall(passes: tuple[WatchedPass, ...]) -> Stall | None:
    """The longest gap between two tokens of one answer on one engine; None where no answer has two there.

    A cache that moves to another engine is not a stall of a running answer: `mean_second_token_s` tells that wait.
    """
    last: dict[tuple[int, int], float] = {}
    longest: Stall | None = None
    for one in passes:
        for request in (*one.finished_prompts, *one.decoding):
            begun = last.get((one.replica, request))
            last[one.replica, request] = one.end_s
            if begun is not None and (longest is None or one.end_s - begun > longest.seconds):
                longest = Stall(request=request, start_s=begun, end_s=one.end_s)
    return longest


def pass_rows(schedules: tuple[Schedule, ...]) -> list[dict[str, Any]]:
    """One row a pass: the frames of the chart as a table; requests are numbered from 1."""
    rows = []
    for one in schedules:
        waiting = one.waiting()
        rows += [
            {
                "scheduler": str(one.scheduling),
                "pass": number,
                "engine": step.replica,
                "start_s": step.start_s,
                "end_s": step.end_s,
                "prompt_tokens": step.prefill_tokens,
                "prompts_of": " ".join(str(request + 1) for request, _ in step.prefilling),
                "answers_of": " ".join(str(request + 1) for request in step.decoding),
                "padding_of": " ".join(str(request + 1) for request in step.padded),
                "idle_slots": one.slots - len(step.members),
                "waiting": waiting[number - 1],
            }
            for number, step in enumerate(one.passes, start=1)
        ]
    return rows


def trace_of(schedules: tuple[Schedule, ...]) -> dict[str, Any]:
    """All schedules as trace events for chrome://tracing or Perfetto: a process per lane, a thread per slot; microseconds."""
    events: list[dict[str, Any]] = []
    processes = [(one, lane) for one in schedules for lane, _ in one.lanes]
    for process, (one, lane) in enumerate(processes):
        name = {"name": f"{one.scheduling}, {lane}"}
        events.append({"name": "process_name", "ph": "M", "pid": process, "args": name})
        events += [
            {
                "name": f"{bar.activity} {bar.request + 1}",
                "cat": bar.activity.name.lower(),
                "ph": "X",
                "pid": process,
                "tid": bar.slot,
                "ts": bar.start_s / US,
                "dur": (bar.end_s - bar.start_s) / US,
                "args": {
                    "passes": bar.passes,
                    "input_tokens": int(one.result.input_tokens[bar.request]),
                    "output_tokens": int(one.result.output_tokens[bar.request]),
                },
            }
            for bar in one.bars
            if bar.lane is lane
        ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}
