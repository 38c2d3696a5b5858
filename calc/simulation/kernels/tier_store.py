"""KV tiers as stores: a region of `Replica.blocks` each, entries in a list by last use, found by name as blocks are.

Empty entries come first in the list. Ignores: the way down (writing to a tier takes no time of the engine).
"""

from __future__ import annotations

from calc.simulation.kernels.layout import NONE, Record, Replica


def bucket_of(settings: Record, tier: int, name: int) -> int:
    """Where the chain of a name begins."""
    begin = int(settings["tier_at"][tier])
    return begin + name % (int(settings["tier_at"][tier + 1]) - begin)


def find_stored(replica: Replica, settings: Record, tier: int, name: int, now_s: float) -> int:
    """The entry of a tier with this text, if it has not expired, or NONE."""
    entry = int(replica.blocks[bucket_of(settings, tier, name)]["tier_bucket"])
    while entry != NONE and replica.blocks[entry]["name"] != name:
        entry = int(replica.blocks[entry]["chain_next"])
    if entry != NONE and now_s - replica.blocks[entry]["freed"] > settings["ttl_s"]:
        return NONE
    return entry


def use_last(replica: Replica, tier: int, entry: int) -> None:
    """Move an entry to the end of its tier's list: it is the last to be reused."""
    state = replica.state[0]
    before = int(replica.blocks[entry]["previous"])
    after = int(replica.blocks[entry]["next"])
    if after == NONE:
        return
    replica.blocks[after]["previous"] = before
    if before == NONE:
        state["tier_head"][tier] = after
    else:
        replica.blocks[before]["next"] = after
    tail = int(state["tier_tail"][tier])
    replica.blocks[tail]["next"] = entry
    replica.blocks[entry]["previous"] = tail
    replica.blocks[entry]["next"] = NONE
    state["tier_tail"][tier] = entry


def store(replica: Replica, settings: Record, tier: int, name: int, freed_s: float) -> tuple[int, float]:
    """Put a text into a tier; returns the one that had to go, and when it was last used (0: none had to)."""
    head = bucket_of(settings, tier, name)
    entry = int(replica.blocks[head]["tier_bucket"])
    while entry != NONE and replica.blocks[entry]["name"] != name:
        entry = int(replica.blocks[entry]["chain_next"])
    gone, gone_s = 0, 0.0
    if entry == NONE:
        entry = int(replica.state[0]["tier_head"][tier])
        gone, gone_s = int(replica.blocks[entry]["name"]), float(replica.blocks[entry]["freed"])
        if gone != 0:
            before = int(replica.blocks[entry]["chain_previous"])
            after = int(replica.blocks[entry]["chain_next"])
            if before == NONE:
                replica.blocks[bucket_of(settings, tier, gone)]["tier_bucket"] = after
            else:
                replica.blocks[before]["chain_next"] = after
            if after != NONE:
                replica.blocks[after]["chain_previous"] = before
        first = int(replica.blocks[head]["tier_bucket"])
        replica.blocks[entry]["name"] = name
        replica.blocks[entry]["chain_next"] = first
        replica.blocks[entry]["chain_previous"] = NONE
        if first != NONE:
            replica.blocks[first]["chain_previous"] = entry
        replica.blocks[head]["tier_bucket"] = entry
    replica.blocks[entry]["freed"] = freed_s
    use_last(replica, tier, entry)
    return gone, gone_s


def demote(replica: Replica, settings: Record, name: int, freed_s: float) -> None:
    """A block is about to be overwritten: its text goes one tier down, and pushes others further."""
    for tier in range(settings["tiers"]):
        if name != 0:
            name, freed_s = store(replica, settings, tier, name, freed_s)
