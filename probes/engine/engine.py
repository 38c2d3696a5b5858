"""The loop around the passes, and the record that the simulator is checked against.

One thread runs passes; others submit. A pass begins when the one before it ends, or, after idling, at the moment of the
arrival that ended it; it sees the requests that arrived until then. That is the simulator's clock, so that a record's
passes can be played again in it (`calc.simulation.replay`).
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from calc.errors import ProbeError
from calc.simulation.replay import Decisions
from calc.simulation.rules import EngineRules
from probes.engine.cache import Piece
from probes.engine.decoder import Decoder
from probes.engine.sampling import GREEDY, Sampling, next_tokens
from probes.engine.scheduler import Request, Schedule, scheduler_of

MOST_WAITING = 4096


@dataclass(slots=True)
class Counters:
    """Sums since the start, for the metrics route."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0
    preemptions: int = 0
    passes: int = 0
    queue_s: float = 0.0
    ttft_s: float = 0.0
    tpot_s: float = 0.0
    tpot_requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPass:
    """One pass: when it began and ended, seconds of the engine's clock, and what it did."""

    begin_s: float
    end_s: float
    decisions: Decisions


@dataclass(eq=False)
class Engine:
    """A decoder, a scheduler and their cache. `recording`: keep every pass and request (for checks, not for servers)."""

    decoder: Decoder
    rules: EngineRules
    recording: bool = False
    clock: Callable[[], float] = time.perf_counter
    counters: Counters = field(default_factory=Counters)
    passes: list[RecordedPass] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    failure: str = ""

    def __post_init__(self) -> None:
        self.scheduler = scheduler_of(self.rules)
        self.store = self.decoder.store(num_blocks=self.rules.num_blocks, block_size=self.rules.block_size)
        self._changed = threading.Condition()
        self._arrived: deque[Request] = deque()
        self._left: deque[Request] = deque()
        self._closed = False
        self._numbers = 0

    # ---- from other threads

    def submit(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        sampling: Sampling = GREEDY,
        end_tokens: Iterable[int] = (),
        listener: Callable[[Request, int], Any] | None = None,
    ) -> Request:
        """Queue a prompt; `listener(request, token)` is called in the engine's thread, with -1 when the engine failed.

        Raises InputError for a request that cannot run, ProbeError where the queue is full or the engine has stopped.
        """
        self.decoder.shape.check_lengths(prompt, max_tokens)
        with self._changed:
            request = Request(
                self._numbers,
                tuple(prompt),
                max_tokens,
                self.clock(),
                sampling,
                frozenset(end_tokens),
                listener,
            )
            self.scheduler.check(request)
            if (
                self._closed
                or self.failure
                or len(self._arrived) + len(self.scheduler.waiting) >= MOST_WAITING
            ):
                raise ProbeError(
                    self.failure or "The engine takes no more requests.", next_step="Try again later."
                )
            self._numbers += 1
            self._arrived.append(request)
            if self.recording:
                self.requests.append(request)
            self._changed.notify()
        return request

    def abort(self, request: Request) -> None:
        """Drop a request before the next pass; nothing happens if it has finished."""
        with self._changed:
            self._left.append(request)
            self._changed.notify()

    def close(self) -> None:
        """No more requests: `run` returns when all are done."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    # ---- the engine's thread

    def run(self) -> None:
        """Run passes until closed and done. A pass that the device cannot run ends the engine, and everybody is told."""
        now = -math.inf  # a first pass begins with the first arrival
        while (begin := self._next_begin(now)) is not None:
            schedule = self.scheduler.schedule(begin)
            waiting = len(self.scheduler.waiting)
            try:
                tokens = self._compute(schedule)
            except RuntimeError as error:
                self._fail(f"The pass could not be run: {str(error).splitlines()[0]}")
                return
            with self._changed:  # nobody can arrive between the end of this pass and the look at who has
                now = self.clock()
                emitted = self.scheduler.book(schedule, tokens, now)
                self._note(schedule, begin, now, waiting)
                self._drain(now)
            for request in emitted:
                self._tell(request, tokens[request.number])

    def _next_begin(self, now: float) -> float | None:
        """Wait until there is something to do; the moment at which it can begin, or None when closed and done."""
        with self._changed:
            while True:
                self._drain(now)
                wake = self.scheduler.wake_s(now, closed=self._closed)
                if self._arrived and (wake is None or self._arrived[0].arrival_s <= wake):
                    now = max(now, self._arrived[0].arrival_s)
                elif wake is not None and wake <= max(now, self.clock()):
                    return wake
                elif wake is None and self._closed:
                    return None
                else:
                    self._changed.wait(None if wake is None else wake - self.clock())

    def _drain(self, now: float) -> None:
        """Hand those that arrived until `now` to the scheduler, and let go those who left."""
        while self._arrived and self._arrived[0].arrival_s <= now:
            self.scheduler.waiting.append(self._arrived.popleft())
        while self._left:
            request = self._left.popleft()
            if not request.finished:
                request.finished = "abort"
                self.scheduler.leave(request)
                if request in self._arrived:
                    self._arrived.remove(request)

    def _compute(self, schedule: Schedule) -> dict[int, int]:
        """Run the pass on the device; the token of every request that gets one, by number."""
        pieces, dice = [], []
        for request in schedule.decoded:
            pieces.append(self._piece(request, 1, 0))
            dice.append((request, True))
        for request, count in schedule.chunks:
            pieces.append(self._piece(request, count, max(0, schedule.padded_to - count)))
            dice.append((request, count == request.rest))
        logits = self.decoder.logits(pieces, self.store)
        rows = [row for row, (_, complete) in enumerate(dice) if complete]
        tokens = next_tokens(logits[rows], [dice[row][0].dice for row in rows])
        return {dice[row][0].number: token for row, token in zip(rows, tokens, strict=True)}

    def _piece(self, request: Request, count: int, padding: int) -> Piece:
        tokens = request.tokens[request.computed : request.computed + count] + [0] * padding
        table = self.scheduler.pages.block_table(request.number)
        return Piece(tokens=tokens, start=request.computed, block_table=table, padding=padding)

    def _note(self, schedule: Schedule, begin: float, end: float, waiting: int) -> None:
        self.counters.passes += 1
        self.counters.preemptions += len(schedule.preempted)
        if self.recording:
            decisions = Decisions(
                chunks=tuple((request.number, count) for request, count in schedule.chunks),
                decoded=tuple(sorted(request.number for request in schedule.decoded)),
                preempted=tuple(sorted(request.number for request in schedule.preempted)),
                running=len(self.scheduler.running),
                waiting=waiting,
                used_blocks=self.scheduler.pages.num_used_blocks,
            )
            self.passes.append(RecordedPass(begin_s=begin, end_s=end, decisions=decisions))

    def _tell(self, request: Request, token: int) -> None:
        counters = self.counters
        counters.answer_tokens += 1
        if request.first_s is not None and request.first_s == request.last_s:
            counters.ttft_s += request.first_s - request.arrival_s
            counters.queue_s += (request.scheduled_s or request.arrival_s) - request.arrival_s
            counters.prompt_tokens += len(request.prompt)
            counters.cached_tokens += request.cached
            counters.requests += 1
        if request.finished and request.last_s != request.first_s:
            counters.tpot_s += (request.last_s - request.first_s) / (request.answered - 1)  # type: ignore[operator]
            counters.tpot_requests += 1
        if request.listener is not None:
            request.listener(request, token)

    def _fail(self, words: str) -> None:
        with self._changed:
            self.failure = words
            everybody = {*self._arrived, *self.scheduler.waiting, *self.scheduler.running}
        for request in everybody:
            request.finished = "abort"
            if request.listener is not None:
                request.listener(request, -1)
