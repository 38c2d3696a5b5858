"""Engines that mix prefill and decode: who is admitted to a pass, and with how many tokens and blocks."""

from __future__ import annotations

from calc.simulation.kernels.blocks import ceil_div, claim_hits, count_hits, list_blocks, take_blocks
from calc.simulation.kernels.chunks import add_chunk, first_chunk
from calc.simulation.kernels.layout import (
    CHUNK_REQUEST,
    CHUNK_TOKENS,
    Record,
    Replica,
    Requests,
    Run,
    inlined,
)
from calc.simulation.kernels.sequences import leave_waiting, start_running, waiting_first
from calc.simulation.kernels.tiers import plan_load
from calc.simulation.kernels.transfer import is_remote, join_ready, load, remote_need, send


def admission(
    requests: Requests, replica: Replica, settings: Record, request: int, budget: int, free: int
) -> tuple[int, int, int]:
    """(prompt tokens, cached blocks, new blocks) with which a waiting request can start; (0, 0, 0): it cannot."""
    if budget <= 0 or replica.state[0]["running"] >= settings["max_seqs"]:
        return 0, 0, 0
    size = int(settings["block_size"])
    target = int(requests[request]["target"])
    hits, revived = count_hits(requests, replica, settings, request)
    if is_remote(requests, settings, request):
        new = remote_need(requests, settings, request, hits)
        fits = new + revived <= free - int(settings["watermark"])
        return (target, hits, new) if fits else (0, 0, 0)
    chunk = first_chunk(requests, settings, request, hits * size, budget)
    if not settings["chunked"] and chunk < target - hits * size:
        return 0, 0, 0
    whole = ceil_div(target, size) - hits
    if settings["reserve_all"]:
        whole = int(requests[request]["reserve"])
    new = (
        whole
        if settings["reserve_prompt"] or settings["reserve_all"]
        else ceil_div(hits * size + chunk, size) - hits
    )
    needed = whole if settings["whole_prompt"] else new
    if needed + revived > free - int(settings["watermark"]):
        return 0, 0, 0
    return chunk, hits, new


def admit(requests: Requests, replica: Replica, run: Run, chunks: int, budget: int) -> tuple[int, float]:
    """Admit waiting requests while they can start; returns the number of chunks in the pass, and their attention."""
    settings = run.settings
    state = replica.state[0]
    size = int(settings["block_size"])
    attention = 0.0
    if state["ready"] > 0:
        chunks, budget, attention = join_ready(requests, replica, run, chunks, budget)
    while state["waiting"] > 0 and state["ready"] == 0:
        request = waiting_first(replica, settings)
        chunk, hits, new = admission(requests, replica, settings, request, budget, int(state["free"]))
        if chunk == 0:
            break
        leave_waiting(requests, replica, settings, request)
        if is_remote(requests, settings, request):
            send(requests, replica, run, request, hits, new)
            continue
        if settings["tiers"]:
            host, disk = plan_load(requests, replica, run, request, hits)
            if host + disk > 0 and fits_whole(requests, replica, settings, request, hits):
                load(requests, replica, run, request, hits, host, disk)
                continue
        start_running(requests, replica, request, float(state["now"]))
        claim_hits(requests, replica, settings, request, hits)
        take_blocks(requests, replica, settings, request, new)
        requests[request]["computed"] = hits * size
        list_blocks(requests, replica, settings, request, hits * size, hits * size + chunk)
        attention += add_chunk(requests, replica, chunks, request, chunk)
        chunks += 1
        budget -= chunk
    return chunks, attention


def fits_whole(requests: Requests, replica: Replica, settings: Record, request: int, hits: int) -> bool:
    """Whether all blocks of a prompt can be taken, `hits` cached ones among them."""
    _, revived = count_hits(requests, replica, settings, request)
    new = ceil_div(int(requests[request]["target"]), int(settings["block_size"])) - hits
    return bool(new + revived <= replica.state[0]["free"] - settings["watermark"])


@inlined
def may_admit(requests: Requests, replica: Replica, settings: Record, budget: int, free: int) -> bool:
    """Whether the next pass, with this budget and these blocks, would admit somebody who waits."""
    state = replica.state[0]
    if state["ready"] > 0:
        return bool(budget > 0 and state["running"] < settings["max_seqs"])
    if state["waiting"] == 0:
        return False
    first = waiting_first(replica, settings)
    return admission(requests, replica, settings, first, budget, free)[0] > 0


@inlined
def give_chunk_blocks(requests: Requests, replica: Replica, settings: Record, chunk: int) -> None:
    """Give a running request the blocks of its next chunk, and list those that it fills."""
    request = int(replica.lists[CHUNK_REQUEST, chunk])
    computed = int(requests[request]["computed"])
    after = computed + int(replica.lists[CHUNK_TOKENS, chunk])
    more = ceil_div(after, int(settings["block_size"])) - int(requests[request]["held"])
    if more > 0:
        take_blocks(requests, replica, settings, request, more)
    list_blocks(requests, replica, settings, request, computed, after)
