"""A small pool played through: the same requests in a cache that reserves and in a paged one, action by action.

A story is a tuple of actions; `play` replays it on the real allocator, so that a page holds no state but the story.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from calc.paging import PagedKvCache, blocks_for

NUM_BLOCKS = 48
BLOCK_SIZE = 16
RESERVED_TOKENS = 128
"""What the reserving cache sets aside for each request: the longest allowed here."""
PROMPTS = (37, 90, 23, 61, 108, 18, 74, 45)
"""Prompt lengths of the requests in turn (made up, mixed like real ones)."""
SHARED_TOKENS = 32
"""Tokens of the system prompt that requests may share: two blocks."""
WRITTEN_TOKENS = 8


class Action(StrEnum):
    """What can happen to the pool."""

    ADD = "add a request"
    ADD_SHARED = "add one with the shared prompt"
    FORK = "fork the newest into a second sample"
    WRITE = "write 8 tokens to each"
    FINISH = "finish the oldest"


Story = tuple[Action, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One block on screen: who holds it (none: free), how many hold it, its filled share, and whether a hit could reuse it."""

    owners: tuple[int, ...]
    filled: int
    cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A cache at the end of a story. `used_slots` hold tokens; `wasted_slots` are held but empty; `turned_away` requests."""

    name: str
    cells: tuple[Cell, ...]
    requests: int
    turned_away: int
    used_slots: int
    wasted_slots: int
    saved_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Both caches, and what happened in the paged one, newest last."""

    reserved: Pool
    paged: Pool
    log: tuple[str, ...]


@dataclass(slots=True)
class _Stage:
    paged: PagedKvCache = field(
        default_factory=lambda: PagedKvCache(num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
    )
    reserved: dict[int, int] = field(default_factory=dict)  # request -> tokens
    next_id: int = 0
    turned_away: int = 0
    reserved_turned_away: int = 0
    log: list[str] = field(default_factory=list)


def play(story: Story) -> Played:
    """Replay the actions in order on both caches."""
    stage = _Stage()
    for action in story:
        _ACTIONS[action](stage)
    stage.paged.check()
    return Played(reserved=_reserved_pool(stage), paged=_paged_pool(stage), log=tuple(stage.log))


def _add(stage: _Stage, *, shared: bool = False) -> None:
    length = PROMPTS[stage.next_id % len(PROMPTS)]
    request = stage.next_id
    stage.next_id += 1
    own = [1_000 * (request + 1) + i for i in range(length)]
    tokens = [*range(SHARED_TOKENS), *own] if shared else own
    places = NUM_BLOCKS * BLOCK_SIZE // RESERVED_TOKENS
    if len(stage.reserved) < places:
        stage.reserved[request] = len(tokens)
    else:
        stage.reserved_turned_away += 1
    placed = stage.paged.add(request, tokens)
    if placed is None:
        stage.turned_away += 1
        stage.log.append(f"request {request + 1} of {len(tokens)} tokens waits: no block is free")
        return
    hit = f", {placed.cached_tokens} of them cached already" if placed.cached_tokens else ""
    stage.log.append(f"request {request + 1}: {len(tokens)} tokens{hit}, {len(placed.block_table)} blocks")


def _fork(stage: _Stage) -> None:
    if not stage.paged.sequence_ids:
        stage.log.append("nothing to fork")
        return
    parent = stage.paged.sequence_ids[-1]
    child = stage.next_id
    stage.next_id += 1
    table = stage.paged.fork(parent, child)
    places = NUM_BLOCKS * BLOCK_SIZE // RESERVED_TOKENS
    if len(stage.reserved) < places:
        stage.reserved[child] = stage.paged.num_tokens(parent)
    else:
        stage.reserved_turned_away += 1
    stage.log.append(f"request {child + 1} shares all {len(table)} blocks of request {parent + 1}")


def _write(stage: _Stage) -> None:
    for request in stage.paged.sequence_ids:
        for number in range(WRITTEN_TOKENS):
            _write_one(stage, request, token=1_000_000 + 1_000 * request + number)
    for request in stage.reserved:
        stage.reserved[request] = min(RESERVED_TOKENS, stage.reserved[request] + WRITTEN_TOKENS)


def _write_one(stage: _Stage, request: int, *, token: int) -> None:
    """One token of a request that is still there; the newest requests make room until it fits."""
    while request in stage.paged.sequence_ids:
        write = stage.paged.append(request, token)
        if write is None:
            _preempt(stage)
            continue
        if write.copied_from is not None:
            stage.log.append(
                f"request {request + 1} writes: block {write.copied_from} is copied to {write.block}"
            )
        return


def _preempt(stage: _Stage) -> None:
    """No block is free: the newest request gives its blocks back and will be computed again."""
    newest = stage.paged.sequence_ids[-1]
    freed = stage.paged.free(newest)
    stage.turned_away += 1
    stage.log.append(f"no block is free: request {newest + 1} is preempted, {freed} blocks come back")


def _finish(stage: _Stage) -> None:
    if not stage.paged.sequence_ids:
        stage.log.append("nothing to finish")
        return
    oldest = stage.paged.sequence_ids[0]
    freed = stage.paged.free(oldest)
    stage.reserved.pop(oldest, None)
    stage.log.append(f"request {oldest + 1} is done, {freed} blocks come back")


_ACTIONS: dict[Action, Callable[[_Stage], None]] = {
    Action.ADD: _add,
    Action.ADD_SHARED: lambda stage: _add(stage, shared=True),
    Action.FORK: _fork,
    Action.WRITE: _write,
    Action.FINISH: _finish,
}


def _paged_pool(stage: _Stage) -> Pool:
    cache = stage.paged
    owners: dict[int, list[int]] = {}
    for request in cache.sequence_ids:
        for block in cache.block_table(request):
            owners.setdefault(block, []).append(request)
    cells = tuple(
        Cell(
            owners=tuple(owners.get(block, ())),
            filled=cache.filled_slots(block),
            cached=cache.is_cached(block),
        )
        for block in range(NUM_BLOCKS)
    )
    held = [cell for cell in cells if cell.owners]
    logical = sum(cache.num_tokens(request) for request in cache.sequence_ids)
    stored = sum(cell.filled for cell in held)
    return Pool(
        name="paged",
        cells=cells,
        requests=len(cache.sequence_ids),
        turned_away=stage.turned_away,
        used_slots=stored,
        wasted_slots=len(held) * BLOCK_SIZE - stored,
        saved_slots=logical - stored,
    )


def _reserved_pool(stage: _Stage) -> Pool:
    each = blocks_for(RESERVED_TOKENS, BLOCK_SIZE)
    cells: list[Cell] = []
    for request, tokens in stage.reserved.items():
        for block in range(each):
            filled = max(0, min(BLOCK_SIZE, tokens - block * BLOCK_SIZE))
            cells.append(Cell(owners=(request,), filled=filled, cached=False))
    cells += [Cell(owners=(), filled=0, cached=False)] * (NUM_BLOCKS - len(cells))
    used = sum(min(tokens, RESERVED_TOKENS) for tokens in stage.reserved.values())
    return Pool(
        name="reserving",
        cells=tuple(cells[:NUM_BLOCKS]),
        requests=len(stage.reserved),
        turned_away=stage.reserved_turned_away,
        used_slots=used,
        wasted_slots=len(stage.reserved) * RESERVED_TOKENS - used,
        saved_slots=0,
    )
