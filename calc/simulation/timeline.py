"""Who did what when: a run pass by pass, and each request's life as spans, for charts and for stepping through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np

from calc.errors import InputError
from calc.simulation.cluster import Cluster
from calc.simulation.requests import RequestTable
from calc.simulation.results import PassRecord, SimulationResult
from calc.simulation.rules import EngineFamily, EngineRules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable

MOST_REQUESTS = 2_000
MOST_PASSES = 200_000


class Activity(StrEnum):
    """What happens to a request."""

    WAIT = "wait"
    PREFILL = "prefill"
    DECODE = "decode"
    TRANSFER = "transfer"
    PADDING = "padding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of one request's life on one replica; `tokens`: of the prompt, or of the answer.

    wait: nothing is done for it (queued, preempted, or left out of a pass). padding: a static batch holds its slot after
    its own last token.
    """

    request: int
    replica: int
    activity: Activity
    start_s: float
    end_s: float
    tokens: int = 0

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """`spans`: ordered by request, then time, without gaps from arrival to the last token (a static batch's end).

    `passes`: every pass, with its members, in the order of their ends' booking: by start, per replica.
    """

    result: SimulationResult
    spans: tuple[Span, ...]

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        return self.result.log

    def busy_share(self) -> float:
        """Share of the requests' time in their slots, from the first admission to the end, that is not wait or padding."""
        worked = sum(
            span.seconds for span in self.spans if span.activity in (Activity.PREFILL, Activity.DECODE)
        )
        held = float((self.result.last_s - self.result.scheduled_s).sum())
        return worked / held if held > 0 else 0.0


def timeline(
    requests: RequestTable,
    rules: EngineRules,
    step: StepTable,
    *,
    cluster: Cluster | None = None,
    compiled: bool = False,
) -> Timeline:
    """Simulate every pass, and keep who was in it. Plain Python by default: a small run needs no compilation."""
    if len(requests) > MOST_REQUESTS:
        raise InputError("requests", len(requests), f"a timeline is drawn of at most {MOST_REQUESTS:,}")
    result = simulate(
        requests,
        rules,
        step,
        cluster=cluster,
        skip=False,
        compiled=compiled,
        log_passes=MOST_PASSES,
        log_members=True,
    )
    if len(result.log) >= MOST_PASSES:
        raise InputError("requests", len(result.log), f"a timeline has at most {MOST_PASSES:,} passes")
    static = rules.family is EngineFamily.STATIC
    done = _static_spans(result) if static else _worked_spans(result)
    spans: list[Span] = []
    for i, mine in enumerate(done):
        spans.extend(_filled(result, i, mine))
    return Timeline(result=result, spans=tuple(spans))


def _static_spans(result: SimulationResult) -> list[list[Span]]:
    """A static batch prefills as one, and each slot is held until the batch ends."""
    made: list[list[Span]] = []
    for i in range(len(result)):
        times = (result.scheduled_s[i], result.first_s[i], result.spoken_s[i], result.last_s[i])
        kinds = (Activity.PREFILL, Activity.DECODE, Activity.PADDING)
        tokens = (int(result.input_tokens[i]), int(result.output_tokens[i]) - 1, 0)
        made.append(
            [
                Span(
                    request=i,
                    replica=int(result.replica[i]),
                    activity=kind,
                    start_s=float(start),
                    end_s=float(end),
                    tokens=count,
                )
                for kind, count, (start, end) in zip(kinds, tokens, pairwise(times), strict=True)
                if end > start
            ]
        )
    return made


def _worked_spans(result: SimulationResult) -> list[list[Span]]:
    """The passes that each request was in, neighbouring decode passes joined."""
    made: list[list[Span]] = [[] for _ in range(len(result))]
    for one in sorted(result.log, key=lambda one: one.start_s):
        members = [(request, Activity.PREFILL, tokens) for request, tokens in one.chunks]
        members += [(request, Activity.DECODE, tokens) for request, tokens in one.decoded]
        for request, activity, tokens in members:
            mine = made[request]
            joins = (
                mine
                and activity is Activity.DECODE
                and mine[-1].activity is activity
                and mine[-1].end_s == one.start_s
            )
            start_s = mine[-1].start_s if joins else one.start_s
            before = mine.pop().tokens if joins else 0
            mine.append(
                Span(
                    request=request,
                    replica=one.replica,
                    activity=activity,
                    start_s=start_s,
                    end_s=one.end_s,
                    tokens=before + tokens,
                )
            )
    return made


def _filled(result: SimulationResult, request: int, worked: list[Span]) -> Iterator[Span]:
    """A request's spans with what lies between them: waits, and the transfer to the other pool."""
    now_s = float(result.arrival_s[request])
    sent_s, landed_s = float(result.sent_s[request]), float(result.landed_s[request])
    for span in worked:
        if span.start_s > now_s:
            cuts = [now_s, span.start_s]
            if not np.isnan(sent_s) and now_s <= sent_s < span.start_s:
                cuts = [now_s, sent_s, landed_s, span.start_s]
            for start_s, end_s in pairwise(cuts):
                moving = start_s == sent_s and end_s == landed_s
                if end_s > start_s:
                    yield Span(
                        request=request,
                        replica=span.replica,
                        activity=Activity.TRANSFER if moving else Activity.WAIT,
                        start_s=start_s,
                        end_s=end_s,
                    )
        yield span
        now_s = span.end_s
