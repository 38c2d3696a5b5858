"""The pool of KV blocks over arrays: counted only, or by name when prefixes are cached.

With caching it is `calc.paging.PagedKvCache` without copies of shared tails: freed blocks wait in the order in which
they became free, stay hittable until reused, and a hit takes them back. A block is named by a number that says whose
text it holds and which block of it, so that equal names mean equal prefixes without hashing tokens.

Ignores: a second block with the same text is not listed, so that it cannot be hit after the first was reused.
"""

from __future__ import annotations

from calc.simulation.kernels.beams import cut_beams
from calc.simulation.kernels.groups import group_blocks
from calc.simulation.kernels.layout import DECODE, FREE_SLOTS, NONE, Record, Replica, Requests, inlined
from calc.simulation.kernels.tier_store import demote


@inlined
def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


@inlined
def context(requests: Requests, state: Record, request: int) -> int:
    """Tokens of a request in the cache."""
    if requests[request]["state"] == DECODE:
        total = int(requests[request]["input"]) + int(requests[request]["output"]) - 1
        return total - int(requests[request]["due"] - state["tick"])
    return int(requests[request]["computed"])


def block_name(requests: Requests, replica: Replica, settings: Record, request: int, index: int) -> int:
    """The name of the text of block `index` of a request, all text before it included. Never 0."""
    end = (index + 1) * int(settings["block_size"])
    ids_block = int(settings["ids_block"])
    if ids_block > 0 and end <= requests[request]["input"]:
        place = int(requests[request]["id_start"]) + (end - 1) // ids_block
        if (end - 1) // ids_block < requests[request]["id_count"]:
            return int(replica.texts[settings["ids_at"] + place]) * int(settings["key_width"]) + index + 1
    text = int(settings["id_count"]) + int(requests[request]["stream"])
    return text * int(settings["key_width"]) + index + 1


def find_block(replica: Replica, name: int) -> int:
    """The block with this text, or NONE."""
    block = int(replica.blocks[name % len(replica.blocks)]["bucket"])
    while block != NONE and replica.blocks[block]["name"] != name:
        block = int(replica.blocks[block]["chain_next"])
    return block


def name_block(replica: Replica, block: int, name: int) -> None:
    """List `block` under the name of its text."""
    place = name % len(replica.blocks)
    first = int(replica.blocks[place]["bucket"])
    replica.blocks[block]["name"] = name
    replica.blocks[block]["chain_next"] = first
    replica.blocks[block]["chain_previous"] = NONE
    if first != NONE:
        replica.blocks[first]["chain_previous"] = block
    replica.blocks[place]["bucket"] = block


def forget_block(replica: Replica, block: int) -> None:
    """Take `block` off the list: its text is about to be overwritten."""
    name = int(replica.blocks[block]["name"])
    before = int(replica.blocks[block]["chain_previous"])
    after = int(replica.blocks[block]["chain_next"])
    if before == NONE:
        replica.blocks[name % len(replica.blocks)]["bucket"] = after
    else:
        replica.blocks[before]["chain_next"] = after
    if after != NONE:
        replica.blocks[after]["chain_previous"] = before
    replica.blocks[block]["name"] = 0


def pull_free(replica: Replica, block: int) -> None:
    """Take `block` out of the free list."""
    state = replica.state[0]
    before = int(replica.blocks[block]["previous"])
    after = int(replica.blocks[block]["next"])
    if before == NONE:
        state["free_head"] = after
    else:
        replica.blocks[before]["next"] = after
    if after == NONE:
        state["free_tail"] = before
    else:
        replica.blocks[after]["previous"] = before


def drop_block(replica: Replica, block: int) -> None:
    """One holder less; with none left it waits at the end of the free list."""
    state = replica.state[0]
    replica.blocks[block]["holders"] -= 1
    if replica.blocks[block]["holders"] == 0:
        replica.blocks[block]["freed"] = state["now"]
        tail = int(state["free_tail"])
        replica.blocks[block]["previous"] = tail
        replica.blocks[block]["next"] = NONE
        if tail == NONE:
            state["free_head"] = block
        else:
            replica.blocks[tail]["next"] = block
        state["free_tail"] = block
        state["free"] += 1


@inlined
def take_blocks(requests: Requests, replica: Replica, settings: Record, request: int, count: int) -> None:
    """Give a request `count` new blocks; the caller has seen that they are free."""
    state = replica.state[0]
    held = int(requests[request]["held"])
    requests[request]["held"] = held + count
    state["free"] -= count
    state["peak_blocks"] = max(state["peak_blocks"], settings["num_blocks"] - state["free"])
    if settings["cached"]:
        table = int(requests[request]["slot"]) * int(settings["table_width"])
        for i in range(held, held + count):
            block = int(state["free_head"])
            pull_free(replica, block)
            name = int(replica.blocks[block]["name"])
            if name != 0:
                if settings["tiers"]:
                    demote(replica, settings, name, float(replica.blocks[block]["freed"]))
                forget_block(replica, block)
            replica.blocks[block]["holders"] = 1
            replica.texts[table + i] = block


@inlined
def holding(requests: Requests, replica: Replica, settings: Record, request: int) -> int:
    """Blocks that a request holds; while decoding they follow from its context."""
    counted = settings["cached"] or settings["reserve_all"] or settings["drafts"] or settings["beams"]
    if requests[request]["state"] == DECODE and not counted:
        return group_blocks(requests, settings, request, context(requests, replica.state[0], request))
    return int(requests[request]["held"])


def give_back(requests: Requests, replica: Replica, settings: Record, request: int) -> None:
    """Let all blocks of a request go, its tail first in line for reuse."""
    held = holding(requests, replica, settings, request)
    if settings["beams"]:
        cut_beams(requests, replica, settings, request)
    release(replica, settings, int(requests[request]["slot"]), held)
    requests[request]["slot"] = NONE
    requests[request]["held"] = 0


def release(replica: Replica, settings: Record, slot: int, held: int) -> None:
    """Let `held` blocks go, those of row `slot` of the block table where blocks are named."""
    state = replica.state[0]
    if settings["cached"]:
        table = slot * int(settings["table_width"])
        for i in range(held - 1, -1, -1):
            drop_block(replica, int(replica.texts[table + i]))
        replica.lists[FREE_SLOTS, state["free_slots"]] = slot
        state["free_slots"] += 1
    else:
        state["free"] += held


@inlined
def is_stale(replica: Replica, settings: Record, block: int, now_s: float) -> bool:
    """Whether nobody has held a block for so long that its text has expired."""
    one = replica.blocks[block]
    return bool(one["holders"] == 0 and now_s - one["freed"] > settings["ttl_s"])


@inlined
def count_hits(requests: Requests, replica: Replica, settings: Record, request: int) -> tuple[int, int]:
    """As `hits_at`, for the pass that begins now."""
    return hits_at(requests, replica, settings, request, float(replica.state[0]["now"]))


def hits_at(
    requests: Requests, replica: Replica, settings: Record, request: int, now_s: float
) -> tuple[int, int]:
    """(blocks of its text that are cached from the start, how many of those are free now).

    A hit never covers the last token: at least one is computed.
    """
    hits = 0
    revived = 0
    if settings["cached"]:
        most = (int(requests[request]["target"]) - 1) // int(settings["block_size"])
        while hits < most:
            block = find_block(replica, block_name(requests, replica, settings, request, hits))
            if block == NONE or is_stale(replica, settings, block, now_s):
                break
            if replica.blocks[block]["holders"] == 0:
                revived += 1
            hits += 1
    return hits, revived


@inlined
def claim_hits(requests: Requests, replica: Replica, settings: Record, request: int, hits: int) -> None:
    """Open a block table and share the first `hits` cached blocks of the request's text."""
    if not settings["cached"]:
        return
    state = replica.state[0]
    state["free_slots"] -= 1
    slot = int(replica.lists[FREE_SLOTS, state["free_slots"]])
    requests[request]["slot"] = slot
    for i in range(hits):
        block = find_block(replica, block_name(requests, replica, settings, request, i))
        if replica.blocks[block]["holders"] == 0:
            pull_free(replica, block)
            state["free"] -= 1
        replica.blocks[block]["holders"] += 1
        replica.texts[slot * settings["table_width"] + i] = block
    requests[request]["held"] = hits
    state["peak_blocks"] = max(state["peak_blocks"], settings["num_blocks"] - state["free"])
    if requests[request]["preemptions"] == 0 and not settings["takes_over"]:
        requests[request]["cached"] = hits * settings["block_size"]
        state["hit_blocks"] += hits
        state["looked_up_blocks"] += ceil_div(int(requests[request]["target"]), int(settings["block_size"]))


def list_blocks(
    requests: Requests, replica: Replica, settings: Record, request: int, from_tokens: int, to_tokens: int
) -> None:
    """Make the blocks that are full at `to_tokens`, and were not at `from_tokens`, hittable."""
    if settings["cached"]:
        size = int(settings["block_size"])
        table = int(requests[request]["slot"]) * int(settings["table_width"])
        for i in range(from_tokens // size, to_tokens // size):
            block = int(replica.texts[table + i])
            name = block_name(requests, replica, settings, request, i)
            if replica.blocks[block]["name"] == 0:
                listed = find_block(replica, name)
                if listed != NONE and is_stale(replica, settings, listed, float(replica.state[0]["now"])):
                    forget_block(replica, listed)
                    listed = NONE
                if listed == NONE:
                    name_block(replica, block, name)
