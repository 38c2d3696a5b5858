"""Requests whose cached text travels: from a prefill pool to a decode pool over a link, or up from a tier.

A prefill replica computes a prompt, and its last step gives the first token. Its blocks stay there, and the request
queues at a decode replica. When that has blocks for the whole text, and room for the next token, the transfer takes its
place on the link, first come first served. When it has landed, the blocks on the prefill side are free, and the request
decodes from the next pass on in which there is a place. So a full decode pool fills the prefill pool, and stops it.

A decode replica that preempts computes the text anew by itself, as engines do. A prompt whose text comes from a tier has
all its blocks from the begin of the load, and computes the rest of it when it has landed.
"""

from __future__ import annotations

from calc.simulation.kernels.blocks import ceil_div, claim_hits, holding, list_blocks, release, take_blocks
from calc.simulation.kernels.chunks import add_chunk, first_chunk
from calc.simulation.kernels.heap import heap_push, heap_remove
from calc.simulation.kernels.layout import (
    DEPARTING,
    MOVING,
    NEVER,
    NONE,
    Record,
    Replica,
    Requests,
    Run,
    Runs,
    inlined,
)
from calc.simulation.kernels.sequences import enter_decoding, leave_running, start_running
from calc.simulation.kernels.tiers import loaded_s, touch_stored


@inlined
def next_event_s(runs: Runs) -> float:
    """When the next request on its way arrives somewhere."""
    if runs.world["events"] == 0:
        return NEVER
    return float(runs.moves[runs.moves[0]["heap"]]["event"])


def expect(runs: Runs, request: int, event_s: float) -> None:
    """Note when a request on its way will arrive."""
    runs.moves[request]["event"] = event_s
    heap_push(runs.moves["heap"], runs.world["events"], request, runs.moves["event"], runs.moves["place"])
    runs.world["events"] += 1


def next_landed(runs: Runs) -> int:
    """Take the request that arrives next off the list."""
    request = int(runs.moves[0]["heap"])
    heap_remove(runs.moves["heap"], runs.world["events"], 0, runs.moves["event"], runs.moves["place"])
    runs.world["events"] -= 1
    return request


@inlined
def depart(requests: Requests, replica: Replica, request: int) -> None:
    """Note a request that leaves the replica's own lists in this pass; `dispatch` sees to it when the pass is over."""
    state = replica.state[0]
    requests[request]["state"] = MOVING
    replica.lists[DEPARTING, state["departing"]] = request
    state["departing"] += 1


def dispatch(requests: Requests, replica: Replica, settings: Record, runs: Runs) -> None:
    """Send those that left in the last pass on their way.

    A text on its way has the time of its landing in `late`, and that of its first byte in `emit` if it came over the link;
    one that was handed over has neither: it reaches the decode pool's queue now.
    """
    state = replica.state[0]
    for i in range(state["departing"]):
        request = int(replica.lists[DEPARTING, i])
        move = runs.moves[request]
        if requests[request]["late"] < 0:
            move["landed"] = -1.0
            move["source"] = requests[request]["replica"]
            move["source_slot"] = requests[request]["slot"]
            move["source_held"] = holding(requests, replica, settings, request)
            requests[request]["slot"] = NONE
            requests[request]["held"] = 0
            expect(runs, request, float(state["now"]))
        else:
            move["landed"] = requests[request]["late"]
            requests[request]["late"] = -1.0
            if is_remote(requests, settings, request):
                move["sent"] = requests[request]["emit"]
            else:
                move["source"] = NONE
                if requests[request]["preemptions"] == 0:
                    move["loaded"] = requests[request]["computed"] - requests[request]["cached"]
            expect(runs, request, float(move["landed"]))
    state["departing"] = 0


@inlined
def rouse(replica: Replica, now_s: float) -> None:
    """Let a replica that had nothing to do look again from `now_s` on."""
    state = replica.state[0]
    if state["wake"] >= NEVER and state["running"] + state["waiting"] + state["ready"] > 0:
        state["now"] = max(float(state["now"]), now_s)
        state["wake"] = state["now"]


def hand_over(requests: Requests, replica: Replica, request: int) -> None:
    """The first token is out at a prefill replica: the request goes on to the decode pool, its blocks stay."""
    state = replica.state[0]
    leave_running(requests, replica, request)
    depart(requests, replica, request)
    state["owed"] += 1
    state["last_finished"] += 1


@inlined
def is_remote(requests: Requests, settings: Record, request: int) -> bool:
    """Whether the text of a waiting request is cached in the other pool."""
    return bool(settings["takes_over"] and requests[request]["computed"] == requests[request]["target"])


@inlined
def remote_need(requests: Requests, settings: Record, request: int, hits: int) -> int:
    """Blocks that a transfer needs beside `hits` cached ones: for the text and the token after it."""
    tokens = int(requests[request]["target"]) + 1 + int(settings["drafts"])
    return ceil_div(tokens, int(settings["block_size"])) - hits


def send(requests: Requests, replica: Replica, run: Run, request: int, hits: int, new: int) -> None:
    """Take blocks for a remote request and put its text on the link; cached blocks need not travel."""
    settings = run.settings
    state = replica.state[0]
    claim_hits(requests, replica, settings, request, hits)
    take_blocks(requests, replica, settings, request, new)
    tokens = int(requests[request]["target"]) - hits * int(settings["block_size"])
    free_s = float(run.world["link_free_s"]) if settings["shared_link"] else float(state["link_free_s"])
    sent_s = max(float(state["now"]), free_s)
    free_s = sent_s + tokens * float(settings["token_link_s"])
    run.world["link_free_s"] = free_s
    state["link_free_s"] = free_s
    state["arriving"] += 1
    requests[request]["emit"] = sent_s
    requests[request]["late"] = free_s + float(settings["link_latency_s"])
    depart(requests, replica, request)


def load(
    requests: Requests, replica: Replica, run: Run, request: int, hits: int, host: int, disk: int
) -> None:
    """Take all blocks of a prompt, and put `host` and `disk` blocks of it, behind the cached ones, on their way up."""
    settings = run.settings
    state = replica.state[0]
    size = int(settings["block_size"])
    touch_stored(requests, replica, settings, request, hits, hits + host + disk)
    claim_hits(requests, replica, settings, request, hits)
    new = ceil_div(int(requests[request]["target"]), size) - hits
    take_blocks(requests, replica, settings, request, new)
    free_s, landed_s = loaded_s(replica, run, host, disk)
    state["tier_free_s"] = free_s
    state["loaded_blocks"] += host + disk
    state["arriving"] += 1
    requests[request]["computed"] = (hits + host + disk) * size
    requests[request]["late"] = landed_s
    depart(requests, replica, request)


def let_go(source: Replica, settings: Record, runs: Runs, request: int) -> None:
    """The text has arrived elsewhere: free its blocks on the prefill side, whose `settings` are given."""
    move = runs.moves[request]
    release(source, settings, int(move["source_slot"]), int(move["source_held"]))
    source.state[0]["owed"] -= 1
    rouse(source, float(move["landed"]))


def make_ready(requests: Requests, replica: Replica, settings: Record, request: int, landed_s: float) -> None:
    """The text has arrived: the request joins at the next pass that has a place for it."""
    state = replica.state[0]
    list_blocks(requests, replica, settings, request, 0, int(requests[request]["computed"]))
    tail = int(state["ready_tail"])
    requests[request]["next"] = NONE
    if tail == NONE:
        state["ready_head"] = request
    else:
        requests[tail]["next"] = request
    state["ready_tail"] = request
    state["ready"] += 1
    state["arriving"] -= 1
    rouse(replica, landed_s)


@inlined
def next_ready(requests: Requests, replica: Replica) -> int:
    """Take the request whose text arrived first off the list of those that wait for a place."""
    state = replica.state[0]
    request = int(state["ready_head"])
    state["ready_head"] = requests[request]["next"]
    if state["ready_head"] == NONE:
        state["ready_tail"] = NONE
    state["ready"] -= 1
    return request


def join_ready(
    requests: Requests, replica: Replica, run: Run, chunks: int, budget: int
) -> tuple[int, int, float]:
    """Let those whose text has arrived go on, while there are places: (chunks of the pass, budget left, attention).

    They decode, or compute the rest of their prompt. The blocks for this pass are theirs already.
    """
    state = replica.state[0]
    settings = run.settings
    attention = 0.0
    while state["ready"] > 0 and state["running"] < settings["max_seqs"]:
        request = int(state["ready_head"])
        computed = int(requests[request]["computed"])
        decodes = computed == requests[request]["target"]
        tokens = (
            1 + int(settings["drafts"])
            if decodes
            else first_chunk(requests, settings, request, computed, budget)
        )
        if budget < max(tokens, 1):
            break
        next_ready(requests, replica)
        start_running(requests, replica, request, float(state["now"]))
        if decodes:
            enter_decoding(requests, replica, settings, request, 1, float(requests[request]["first"]))
        else:
            list_blocks(requests, replica, settings, request, computed, computed + tokens)
            attention += add_chunk(requests, replica, chunks, request, tokens)
            chunks += 1
        budget -= tokens
    return chunks, budget, attention
