"""Many sequences: who computes what in the next pass. The rules are those of `calc.simulation`, one class a family.

    VllmScheduler   running requests first, prompts in chunks beside decodes, the last running one preempted
    NanoScheduler   prompts strictly first, all blocks of a prompt at once, only a pass's first prompt is cut
    StaticScheduler a batch is filled, padded to its longest prompt and answer, and ends as one

A request's `computed` tokens are in the cache; whoever has one token left to compute and has begun its answer decodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from calc.errors import InputError
from calc.paging import PagedKvCache, blocks_for
from calc.simulation.rules import EngineFamily, EngineRules, Policy
from probes.engine.sampling import GREEDY, Dice, Sampling


@dataclass(slots=True, eq=False)
class Request:
    """One prompt on its way. tokens: prompt and answer so far; times in seconds of the engine's clock."""

    number: int
    prompt: tuple[int, ...]
    max_tokens: int
    arrival_s: float
    sampling: Sampling = GREEDY
    end_tokens: frozenset[int] = frozenset()
    listener: Callable[[Request, int], Any] | None = None
    tokens: list[int] = field(default_factory=list)
    dice: Dice = field(init=False)
    answered: int = 0  # tokens of the answer so far; a static batch may have computed more
    computed: int = 0
    cached: int = 0
    preemptions: int = 0
    decoding: bool = False
    finished: str = ""  # "", then "length", "stop" or "abort"
    scheduled_s: float | None = None
    first_s: float | None = None
    last_s: float | None = None

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)
        self.dice = Dice(self.sampling)

    @property
    def answer(self) -> list[int]:
        return self.tokens[len(self.prompt) : len(self.prompt) + self.answered]

    @property
    def rest(self) -> int:
        """Tokens to compute before the next one comes out."""
        return len(self.tokens) - self.computed


@dataclass(slots=True)
class Schedule:
    """One pass: prompt chunks (request, tokens), those that decode, those that were preempted for it; padding a chunk."""

    chunks: list[tuple[Request, int]] = field(default_factory=list)
    decoded: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    padded_to: int = 0


class Scheduler:
    """What the families share: the lists, the blocks, preemption, and what a pass leaves behind."""

    computed_later = False  # whether a block can be hit only after the pass that fills it

    def __init__(self, rules: EngineRules) -> None:
        if rules.policy is not Policy.FCFS:
            raise InputError("policy", str(rules.policy), "the reference engine serves in order of arrival")
        self.rules, self.size = rules, rules.block_size
        self.pages = PagedKvCache(
            num_blocks=rules.num_blocks, block_size=self.size, prefix_caching=bool(rules.prefix_cache)
        )
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.slots: list[Request] = []  # of a static batch: kept until it ends, whoever is done

    def check(self, request: Request) -> None:
        """Raise InputError for a request that could never run, alone in the engine."""
        blocks = (
            blocks_for(len(request.prompt) + request.max_tokens - 1, self.size) + self.rules.watermark_blocks
        )
        if blocks > self.rules.num_blocks:
            raise InputError(
                "tokens",
                len(request.prompt) + request.max_tokens,
                f"prompt and answer are too long for the cache of {self.rules.num_blocks * self.size} tokens",
            )
        if not self.rules.chunked_prefill and blocks * self.size > self.rules.budget:
            raise InputError("prompt", len(request.prompt), "without chunks it must fit the token budget")

    def schedule(self, now_s: float) -> Schedule:
        """Decide the next pass and take its blocks."""
        raise NotImplementedError

    def wake_s(self, now_s: float, *, closed: bool) -> float | None:
        """When the next pass can begin, if nobody else arrives; None: there is nothing to do."""
        del closed
        return now_s if self.running or self.waiting else None

    def book(self, schedule: Schedule, tokens: dict[int, int], end_s: float) -> list[Request]:
        """Note what a pass computed and the token of each request that got one; the requests that got one, in order."""
        emitted = []
        for request in schedule.decoded:
            request.computed += 1
            emitted.append(request)
        for request, count in schedule.chunks:
            request.computed += count
            if self.computed_later:
                self.pages.list_computed(request.number, request.computed)
            if request.rest == 0:
                request.decoding = True
                emitted.append(request)
        for request in emitted:
            self._emit(request, tokens[request.number], end_s)
        return emitted

    def _emit(self, request: Request, token: int, end_s: float) -> None:
        request.tokens.append(token)
        request.answered += 1
        request.first_s = end_s if request.first_s is None else request.first_s
        request.last_s = end_s
        ended = token in request.end_tokens
        if ended or request.answered == request.max_tokens:
            request.finished = "stop" if ended else "length"
            self.leave(request)

    def leave(self, request: Request) -> None:
        """Take a request out, whatever it was doing, and give its blocks back."""
        for members in (self.running, self.waiting):
            if request in members:
                members.remove(request)
        if request.number in self.pages.sequence_ids and request not in self.slots:
            self.pages.free(request.number)

    def _preempt_last(self, schedule: Schedule) -> Request:
        """Take everything from the last running request; its tokens are kept, and computed anew from the front of the queue."""
        loser = self.running.pop()
        self.pages.free(loser.number)
        loser.computed, loser.decoding = 0, False
        loser.preemptions += 1
        self.waiting.appendleft(loser)
        schedule.preempted.append(loser)
        return loser

    def _start(self, request: Request, now_s: float, cached: int) -> None:
        request.computed = cached
        if request.scheduled_s is None:
            request.scheduled_s, request.cached = now_s, cached


class VllmScheduler(Scheduler):
    """vLLM V1. Source: vllm/v1/core/sched/scheduler.py, as `calc.simulation.kernels.mixed` and `pressure` have it."""

    def schedule(self, now_s: float) -> Schedule:
        """Running requests in order, each its token or chunk; then, if nobody was preempted, waiting ones."""
        found, budget, place = Schedule(), self.rules.budget, 0
        while place < len(self.running) and budget > 0:
            request = self.running[place]
            count = 1 if request.decoding else self._chunk(request.rest, budget)
            lost = None
            while (
                lost is not request
                and self.pages.blocks_to_extend(request.number, count) > self.pages.num_free_blocks
            ):
                lost = self._preempt_last(found)
            if lost is request:
                break
            self.pages.extend(request.number, request.tokens[request.computed : request.computed + count])
            if request.decoding:
                found.decoded.append(request)
            else:
                found.chunks.append((request, count))
            budget -= count
            place += 1
        while self.waiting and budget > 0 and not found.preempted and len(self.running) < self.rules.places:
            count = self._admit(self.waiting[0], budget, now_s)
            if count == 0:
                break
            self.running.append(self.waiting.popleft())
            found.chunks.append((self.running[-1], count))
            budget -= count
        return found

    def _chunk(self, rest: int, budget: int) -> int:
        return min(rest, budget, self.rules.long_prefill_threshold or rest)

    def _admit(self, request: Request, budget: int, now_s: float) -> int:
        """Place the first chunk of a waiting request; how long it is, 0 where it must wait."""
        tokens = request.tokens
        cached = self.pages.cached_prefix_tokens(tokens)
        count = self._chunk(len(tokens) - cached, budget)
        if not self.rules.chunked_prefill and count < len(tokens) - cached:
            return 0
        planned = tokens if self.rules.reserve_full_prompt else tokens[: cached + count]
        if self.pages.blocks_to_add(planned) > self.pages.num_free_blocks - self.rules.watermark_blocks:
            return 0
        self.pages.add(request.number, tokens[: cached + count])
        self._start(request, now_s, cached)
        return count


class NanoScheduler(Scheduler):
    """nano-vllm. Source: nanovllm/engine/scheduler.py and block_manager.py, as `calc.simulation.kernels.nano_vllm` has it."""

    computed_later = True

    def schedule(self, now_s: float) -> Schedule:
        """Prompts if any can start, else a token for the first `places` running requests."""
        found, budget = Schedule(), self.rules.budget
        while self.waiting and len(found.chunks) < self.rules.places and budget > 0:
            request = self.waiting[0]
            opened = request.number in self.pages.sequence_ids  # cut in an earlier pass
            cached = request.computed if opened else self.pages.cached_prefix_tokens(request.tokens)
            rest = len(request.tokens) - cached
            if rest > budget and found.chunks:
                break
            if not opened:
                if self.pages.add(request.number, request.tokens, computed_later=True) is None:
                    break
                self._start(request, now_s, cached)
            count = min(rest, budget)
            if count == rest:
                self.running.append(self.waiting.popleft())
            found.chunks.append((request, count))
            budget -= count
        if not found.chunks:
            self._decode(found)
        return found

    def _decode(self, found: Schedule) -> None:
        while True:
            batch = self.running[: self.rules.places]
            need = sum(self.pages.blocks_to_extend(request.number, 1) for request in batch)
            if need <= self.pages.num_free_blocks:
                break
            self._preempt_last(found)
        for request in batch:
            self.pages.extend(request.number, request.tokens[request.computed : request.computed + 1])
        found.decoded = batch


class StaticScheduler(Scheduler):
    """A batch at a time: it begins when it is full, or when its first request has waited long enough.

    Every prompt is padded to the longest, and every slot computes until the longest answer is done: the waste that
    continuous batching removes.
    """

    def __init__(self, rules: EngineRules) -> None:
        super().__init__(rules)
        self.left = 0  # passes of the present batch that are still to come

    def wake_s(self, now_s: float, *, closed: bool) -> float | None:
        if self.left or len(self.waiting) >= self.rules.slots or (closed and self.waiting):
            return now_s
        if not self.waiting:
            return None
        return max(now_s, self.waiting[0].arrival_s + (self.rules.batch_timeout_s or 0.0))

    def schedule(self, now_s: float) -> Schedule:
        if self.left:
            self.left -= 1
            return Schedule(decoded=list(self.slots))
        prompt = answer = 0
        self.slots = []
        while self.waiting and len(self.slots) < self.rules.slots:
            request = self.waiting[0]
            longer, more = max(prompt, len(request.prompt)), max(answer, request.max_tokens)
            if (len(self.slots) + 1) * blocks_for(longer + more - 1, self.size) > self.rules.num_blocks:
                break
            prompt, answer = longer, more
            self.slots.append(self.waiting.popleft())
        for request in self.slots:
            self.pages.add(request.number, [0] * (prompt + answer - 1))
            self._start(request, now_s, 0)
        self.running, self.left = list(self.slots), answer - 1
        return Schedule(chunks=[(request, len(request.prompt)) for request in self.slots], padded_to=prompt)

    def book(self, schedule: Schedule, tokens: dict[int, int], end_s: float) -> list[Request]:
        """Slots whose answer is complete go on computing; their tokens are thrown away."""
        over = {request.number for request in self.slots if request.finished}
        emitted = super().book(schedule, tokens, end_s)
        if not self.running:
            self.left = 0  # everybody ended before the longest answer was reached
        if not self.left:
            for request in self.slots:
                self.pages.free(request.number)
            self.slots = []
        return [request for request in emitted if request.number not in over]

    def _emit(self, request: Request, token: int, end_s: float) -> None:
        if request.finished:
            request.tokens.append(token)
        else:
            super()._emit(request, token, end_s)


SCHEDULERS: dict[EngineFamily, type[Scheduler]] = {
    EngineFamily.VLLM: VllmScheduler,
    EngineFamily.NANO_VLLM: NanoScheduler,
    EngineFamily.STATIC: StaticScheduler,
}


def scheduler_of(rules: EngineRules) -> Scheduler:
    """The scheduler of a family; families that only the simulator has are refused."""
    if rules.family not in SCHEDULERS:
        raise InputError(
            "engine rules", str(rules.family), f"the reference engine has {', '.join(SCHEDULERS)}"
        )
    return SCHEDULERS[rules.family](rules)
