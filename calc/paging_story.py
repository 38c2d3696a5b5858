"""A small pool played through: the same requests in a cache that reserves, a paged one, and one that shares.

All three are the real allocator. A story is a setting and a tuple of actions; `play` replays it, so that a page holds
no state but the story.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from calc import format as fmt
from calc.paging import PagedKvCache, blocks_for
from calc.simulation.kernels.draws import BEAM_DROPPED, BEAM_PARENT, uniform

BLOCK_SIZE = 16
SHARED_TOKENS = 32
"""Tokens of the system prompt that requests may share: two blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A pool and what its requests are like. `reserved_tokens`: what the reserving cache sets aside for each."""

    num_blocks: int
    reserved_tokens: int
    prompts: tuple[int, ...]
    written_tokens: int


MIXED = Setting(
    num_blocks=48, reserved_tokens=144, prompts=(37, 90, 23, 61, 108, 18, 74, 45), written_tokens=8
)
"""Prompts of mixed lengths (made up) in a pool that reserving fills with five."""
SAMPLES = Setting(num_blocks=288, reserved_tokens=1152, prompts=(1000,), written_tokens=1)
"""Four samples of one prompt of 1,000 tokens, as the lesson has them."""
BEAMS = Setting(num_blocks=64, reserved_tokens=192, prompts=(75,), written_tokens=5)
"""Four beams of a short prompt (made up), so that their texts part and meet on a small grid."""
MOST_BEAMS = 1024  # more than a story has actions
BEAM_DROP = 0.5
"""Chance that a beam is dropped when they compete: high, so that every press shows something."""


class Action(StrEnum):
    """What can happen to the pool."""

    ADD = "add a request"
    ADD_SHARED = "add one with the shared prompt"
    FORK = "fork the newest into a second sample"
    COMPETE = "let beams compete"
    WRITE = "write tokens to each"
    FINISH = "finish the oldest"
    RUN_OUT = "run out of blocks"


Story = tuple[Action, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One block on screen: who holds it (none: free), and how many of its slots hold tokens.

    `cached`: a new prompt could hit its contents. `touched`: the last action changed it.
    """

    owners: tuple[int, ...]
    filled: int
    cached: bool
    touched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A cache at the end of a story, in token slots.

    `used_slots` hold tokens; `reserved_slots` are in blocks that are held and empty, `internal_slots` are the empty rest
    of a partly filled block, `external_slots` are free and too few for another request to be let in.
    `saved_slots`: what sharing spares. `waiting`: requests that are not in; `preemptions`: how often one was put out.
    """

    name: str
    cells: tuple[Cell, ...]
    requests: int
    waiting: int
    preemptions: int
    used_slots: int
    reserved_slots: int
    internal_slots: int
    external_slots: int
    saved_slots: int

    @property
    def wasted_slots(self) -> int:
        """Held but empty."""
        return self.reserved_slots + self.internal_slots

    @property
    def used_blocks(self) -> int:
        return sum(1 for cell in self.cells if cell.owners)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The three caches, and what happened in the sharing one, newest last."""

    reserving: Pool
    paged: Pool
    sharing: Pool
    log: tuple[str, ...]

    @property
    def pools(self) -> tuple[Pool, ...]:
        return (self.reserving, self.paged, self.sharing)


@dataclass(slots=True)
class _Cache:
    """One allocator and the requests that it was asked to hold; those that it cannot hold wait in order."""

    name: str
    pool: PagedKvCache
    reserved_tokens: int | None = None
    shares: bool = False
    texts: dict[int, list[int]] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    preemptions: int = 0
    log: list[str] = field(default_factory=list)

    def admit(self) -> None:
        """Let in who waits, in order, until one does not fit."""
        while self.waiting and self._place(self.waiting[0]):
            self.waiting.pop(0)

    def add(self, request: int, text: list[int]) -> None:
        self.texts[request] = text
        self.waiting.append(request)
        self.admit()
        if request in self.waiting:
            self.log.append(f"request {request + 1} of {len(text)} tokens waits: too few blocks are free")

    def fork(self, parent: int, child: int) -> None:
        """Another sample: by reference where the cache shares, as a request of its own elsewhere."""
        if self.shares and parent in self.pool.sequence_ids:
            self.texts[child] = list(self.texts[parent])
            table = self.pool.fork(parent, child)
            self.log.append(f"request {child + 1} shares all {len(table)} blocks of request {parent + 1}")
            return
        self.add(child, list(self.texts[parent]))

    def write(self, count: int) -> None:
        """Every request in the pool says `count` tokens."""
        for request in self.pool.sequence_ids:
            for _ in range(count):
                self._write_one(request)

    def compete(self, beams: list[int], parents: list[int]) -> None:
        """Each beam goes on with its parent's text: by reference where the cache shares, as text written anew elsewhere."""
        if not self.shares:
            return  # a beam's own blocks are overwritten: as many as before
        texts = [list(self.texts[parent]) for parent in parents]
        self.texts.update(zip(beams, texts, strict=True))
        freed = self.pool.choose(beams, parents)
        dropped = [beam + 1 for beam in beams if beam not in parents]
        if dropped:
            whose = fmt.plural(len(dropped), "beam") + f" ({', '.join(map(str, dropped))})"
            self.log.append(f"{whose} dropped, {fmt.plural(freed, 'block')} back; others fork in their place")
        else:
            self.log.append("every beam goes on")

    def finish(self, request: int) -> None:
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.pool.sequence_ids:
            freed = self.pool.free(request)
            self.log.append(f"request {request + 1} is done, {freed} blocks come back")
        self.texts.pop(request, None)

    def _place(self, request: int) -> bool:
        text = self.texts[request]
        tokens = text if self.reserved_tokens is None else [request] * self.reserved_tokens
        placed = self.pool.add(request, tokens)
        if placed is None:
            return False
        hit = f", {placed.cached_tokens} of them cached already" if placed.cached_tokens else ""
        self.log.append(f"request {request + 1}: {len(text)} tokens{hit}, {len(placed.block_table)} blocks")
        return True

    def _write_one(self, request: int) -> None:
        """One token of a request that is still in; the newest make room until it fits."""
        text = self.texts[request]
        if self.reserved_tokens is not None:
            if len(text) < self.reserved_tokens:
                text.append(_token(request, len(text)))
            return
        while request in self.pool.sequence_ids:
            write = self.pool.append(request, _token(request, len(text)))
            if write is None:
                self._preempt()
                continue
            text.append(_token(request, len(text)))
            if write.copied_from is not None:
                self.log.append(
                    f"request {request + 1} writes: block {write.copied_from} is copied to {write.block}"
                )
            return

    def _preempt(self) -> None:
        """No block is free: the newest request gives its blocks back, and waits in front to be computed again."""
        newest = self.pool.sequence_ids[-1]
        freed = self.pool.free(newest)
        self.waiting.insert(0, newest)
        self.preemptions += 1
        self.log.append(f"no block is free: request {newest + 1} is preempted, {freed} blocks come back")


def _token(request: int, place: int) -> int:
    """A token that no other request has at that place."""
    return 1_000_000 * (request + 1) + place


@dataclass(slots=True)
class _Stage:
    setting: Setting
    caches: tuple[_Cache, _Cache, _Cache]
    next_id: int = 0
    first_of: dict[int, int] = field(default_factory=dict)  # of each fork: the request that it began as
    rounds: int = 0


def play(story: Story, setting: Setting = MIXED) -> Played:
    """Replay the actions in order on the three caches."""

    def pool(*, prefix_caching: bool) -> PagedKvCache:
        return PagedKvCache(
            num_blocks=setting.num_blocks, block_size=BLOCK_SIZE, prefix_caching=prefix_caching
        )

    caches = (
        _Cache("reserving", pool(prefix_caching=False), reserved_tokens=setting.reserved_tokens),
        _Cache("paged", pool(prefix_caching=False)),
        _Cache("sharing", pool(prefix_caching=True), shares=True),
    )
    stage = _Stage(setting, caches)
    before: tuple[tuple[Cell, ...], ...] = tuple(() for _ in caches)
    for number, action in enumerate(story):
        if number == len(story) - 1:
            before = tuple(_cells(cache) for cache in caches)
        for cache in caches:
            cache.admit()
        _ACTIONS[action](stage)
    for cache in caches:
        cache.pool.check()
    reserving, paged, sharing = (
        _pool(cache, setting, cells) for cache, cells in zip(caches, before, strict=True)
    )
    return Played(reserving=reserving, paged=paged, sharing=sharing, log=tuple(caches[2].log))


def _add(stage: _Stage, *, shared: bool = False) -> None:
    request, prompts = stage.next_id, stage.setting.prompts
    stage.next_id += 1
    own = [_token(request, place) for place in range(prompts[request % len(prompts)])]
    text = [*range(SHARED_TOKENS), *own] if shared else own
    for cache in stage.caches:
        cache.add(request, list(text))


def _fork(stage: _Stage) -> None:
    sharing = stage.caches[2]
    if not sharing.texts:
        sharing.log.append("nothing to fork")
        return
    parent, child = max(sharing.texts), stage.next_id
    stage.next_id += 1
    stage.first_of[child] = stage.first_of.get(parent, parent)
    for cache in stage.caches:
        cache.fork(parent, child)


def _compete(stage: _Stage) -> None:
    """The newest request's samples are beams: after a token each is dropped with a chance, and another forked in its place."""
    sharing = stage.caches[2]
    first = stage.first_of.get(max(sharing.texts, default=0), max(sharing.texts, default=0))
    beams = [one for one in sorted(sharing.texts) if stage.first_of.get(one, one) == first]
    stage.rounds += 1
    if len(beams) < 2 or any(one in sharing.waiting for one in beams):
        sharing.log.append("there are no beams: fork a request first, and let none of them wait")
        return
    parents = []
    for beam in beams:
        chance, place = (
            uniform(0, purpose, first, MOST_BEAMS * stage.rounds + beam)
            for purpose in (BEAM_DROPPED, BEAM_PARENT)
        )
        parents.append(beams[int(place * len(beams))] if chance < BEAM_DROP else beam)
    for cache in stage.caches:
        cache.compete(beams, parents)


def _write(stage: _Stage) -> None:
    for cache in stage.caches:
        cache.write(stage.setting.written_tokens)


def _finish(stage: _Stage) -> None:
    sharing = stage.caches[2]
    if not sharing.texts:
        sharing.log.append("nothing to finish")
        return
    oldest = min(sharing.texts)
    for cache in stage.caches:
        cache.finish(oldest)


def _run_out(stage: _Stage) -> None:
    """Requests until one has to wait, then tokens until one is put out."""
    sharing = stage.caches[2]
    for _ in range(stage.setting.num_blocks):
        if sharing.waiting:
            break
        _add(stage)
    before = sharing.preemptions
    for _ in range(stage.setting.num_blocks * BLOCK_SIZE):
        if sharing.preemptions > before:
            break
        _write(stage)


_ACTIONS: dict[Action, Callable[[_Stage], None]] = {
    Action.ADD: _add,
    Action.ADD_SHARED: lambda stage: _add(stage, shared=True),
    Action.FORK: _fork,
    Action.COMPETE: _compete,
    Action.WRITE: _write,
    Action.FINISH: _finish,
    Action.RUN_OUT: _run_out,
}


def _cells(cache: _Cache) -> tuple[Cell, ...]:
    owners: dict[int, list[int]] = {}
    filled: dict[int, int] = {}
    for request in cache.pool.sequence_ids:
        tokens = len(cache.texts[request])
        for place, block in enumerate(cache.pool.block_table(request)):
            owners.setdefault(block, []).append(request)
            filled[block] = max(0, min(BLOCK_SIZE, tokens - place * BLOCK_SIZE))
    return tuple(
        Cell(
            owners=tuple(owners.get(block, ())),
            filled=filled.get(block, 0),
            cached=cache.pool.is_cached(block),
        )
        for block in range(cache.pool.num_blocks)
    )


def _pool(cache: _Cache, setting: Setting, before: tuple[Cell, ...]) -> Pool:
    """What stands; blocks that differ from `before` were touched by the last action."""
    cells = _cells(cache)
    held = [cell for cell in cells if cell.owners]
    logical = sum(len(cache.texts[request]) for request in cache.pool.sequence_ids)
    stored = sum(cell.filled for cell in held)
    free = cache.pool.num_free_blocks
    stranded = cache.reserved_tokens is not None and free < blocks_for(setting.reserved_tokens, BLOCK_SIZE)
    return Pool(
        name=cache.name,
        cells=tuple(
            replace(cell, touched=bool(before) and _differs(cell, old))
            for cell, old in zip(cells, before or cells, strict=True)
        ),
        requests=len(cache.pool.sequence_ids),
        waiting=len(cache.waiting),
        preemptions=cache.preemptions,
        used_slots=stored,
        reserved_slots=sum(BLOCK_SIZE for cell in held if cell.filled == 0),
        internal_slots=sum(BLOCK_SIZE - cell.filled for cell in held if cell.filled),
        external_slots=free * BLOCK_SIZE if stranded else 0,
        saved_slots=logical - stored,
    )


def _differs(cell: Cell, old: Cell) -> bool:
    return (cell.owners, cell.filled) != (old.owners, old.filled)
