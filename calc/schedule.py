"""The same few requests under several schedulers, slot by slot: what a Gantt chart of serving shows.

Every schedule is a run of the serving simulator, watched pass by pass (`calc.simulation.stepwise`); here its passes
become bars in slots, and the numbers that tell schedulers apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from calc.simulation.export import chrome_trace
from calc.simulation.requests import RequestTable
from calc.simulation.results import SimulationResult
from calc.simulation.rules import MAX_COUNT, EngineRules, engine_rules
from calc.simulation.step_table import StepTable
from calc.simulation.stepwise import WatchedPass, watch

BLOCK_TOKENS = 16
MOST_SLOTS = 16
STALLED = 3.0
"""Times the median pass from which a gap between tokens is called a stall (a choice: a reader sees a threefold gap)."""


class Scheduling(StrEnum):
    """Ways to share one engine between requests."""

    STATIC = "static"
    CONTINUOUS = "continuous"
    CHUNKED = "chunked prefill"


class Activity(StrEnum):
    """What a request does with its slot."""

    PREFILL = "prompt"
    DECODE = "answer"
    HOLD = "admitted, not computed"
    PADDING = "done, slot held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of equal passes of one request in one slot."""

    request: int
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
    def slot_steps(self) -> int:
        """Slots times passes: what there was to use."""
        return self.slots * len(self.passes)

    @property
    def useful_slot_steps(self) -> int:
        """Slot-steps in which a request gained a token or computed a part of its prompt."""
        return sum(len(one.decoding) + len(one.prefilling) for one in self.passes)

    @property
    def slot_use(self) -> float:
        """Share of the slot-steps that did useful work; time without any request is no step."""
        return self.useful_slot_steps / self.slot_steps

    @property
    def stalls(self) -> bool:
        """Whether a running answer waited for far longer than answers usually do."""
        usual = float(np.median([one.end_s - one.start_s for one in self.passes]))
        return self.stall is not None and self.stall.seconds > STALLED * usual

    @property
    def mean_wait_s(self) -> float:
        """From arrival to the first work on the prompt."""
        return float((self.result.scheduled_s - self.result.arrival_s).mean())

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
) -> Schedule:
    """Run the requests on one engine with `slots` slots; `token_budget`: tokens a pass where prompts are cut.

    The KV pool is as large as the slots can fill: what happens when it is not is another page's subject.
    """
    passes, result = watch(
        requests, _rules(scheduling, requests, slots=slots, token_budget=token_budget), step
    )
    return Schedule(
        scheduling=scheduling,
        slots=slots,
        passes=passes,
        bars=bars_of(passes),
        stall=longest_stall(passes),
        result=result,
    )


def _rules(scheduling: Scheduling, requests: RequestTable, *, slots: int, token_budget: int) -> EngineRules:
    longest = int(requests.input_tokens.max() + requests.output_tokens.max())
    num_blocks = slots * -(-longest // BLOCK_TOKENS) + 1
    if scheduling is Scheduling.STATIC:
        return engine_rules("static", num_blocks=num_blocks, batch_size=slots, batch_timeout_s=0.0)
    if scheduling is Scheduling.CONTINUOUS:
        return engine_rules(
            "vllm",
            num_blocks=num_blocks,
            max_seqs=slots,
            token_budget=MAX_COUNT,
            chunked_prefill=False,
        )
    return engine_rules("vllm", num_blocks=num_blocks, max_seqs=slots, token_budget=max(token_budget, slots))


def bars_of(passes: tuple[WatchedPass, ...]) -> tuple[Bar, ...]:
    """Each request in the lowest slot that was free when it came; equal passes in a row are one bar."""
    slot_of: dict[int, int] = {}
    bars: list[Bar] = []
    latest: dict[int, int] = {}  # request -> place of its last bar
    for doing, start_s, end_s, count in _runs(passes):
        slot_of = {request: slot for request, slot in slot_of.items() if request in doing}
        for request, activity in doing.items():
            if request not in slot_of:
                taken = set(slot_of.values())
                slot_of[request] = next(slot for slot in range(len(taken) + 1) if slot not in taken)
            before = bars[latest[request]] if request in latest else None
            if before is not None and before.activity is activity and before.end_s == start_s:
                longer = replace(before, end_s=end_s, passes=before.passes + count)
                bars[latest[request]] = longer
                continue
            latest[request] = len(bars)
            bars.append(
                Bar(
                    request=request,
                    slot=slot_of[request],
                    activity=activity,
                    start_s=start_s,
                    end_s=end_s,
                    passes=count,
                )
            )
    return tuple(bars)


def _runs(passes: tuple[WatchedPass, ...]) -> Iterator[tuple[dict[int, Activity], float, float, int]]:
    """(what each request does, start, end, how many) of passes in a row in which the same happens."""
    before: tuple[dict[int, Activity], float, float, int] | None = None
    for one in passes:
        doing = _activities(one)
        if before is not None and before[0] == doing and before[2] == one.start_s:
            before = (doing, before[1], one.end_s, before[3] + 1)
            continue
        if before is not None:
            yield before
        before = (doing, one.start_s, one.end_s, 1)
    if before is not None:
        yield before


def _activities(one: WatchedPass) -> dict[int, Activity]:
    found = dict.fromkeys((request for request, _ in one.prefilling), Activity.PREFILL)
    found |= dict.fromkeys(one.decoding, Activity.DECODE)
    found |= dict.fromkeys(one.padded, Activity.PADDING)
    found |= dict.fromkeys(one.holding, Activity.HOLD)
    return dict(sorted(found.items()))


def longest_stall(passes: tuple[WatchedPass, ...]) -> Stall | None:
    """The longest gap between two tokens of one answer; None where no answer has two."""
    last: dict[int, float] = {}
    longest: Stall | None = None
    for one in passes:
        for request in (*one.finished_prompts, *one.decoding):
            begun = last.get(request)
            last[request] = one.end_s
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
                "start_s": step.start_s,
                "end_s": step.end_s,
                "prompt_tokens": step.prefill_tokens,
                "prompts_of": " ".join(str(request + 1) for request, _ in step.prefilling),
                "answers_of": " ".join(str(request + 1) for request in step.decoding),
                "padding_of": " ".join(str(request + 1) for request in step.padded),
                "idle_slots": one.slots - len(step.places),
                "waiting": waiting[number - 1],
            }
            for number, step in enumerate(one.passes, start=1)
        ]
    return rows


def trace_of(schedules: tuple[Schedule, ...]) -> dict[str, Any]:
    """All schedules in one file for chrome://tracing or Perfetto, one process each."""
    events: list[dict[str, Any]] = []
    for process, one in enumerate(schedules):
        events += [event | {"pid": process} for event in chrome_trace(one.result)["traceEvents"]]
        name = {"name": str(one.scheduling)}
        events.append({"name": "process_name", "ph": "M", "pid": process, "args": name})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
