"""Where requests stand: waiting and running lists, the decoding set, and what joins and leaves it.

Decoding requests are not touched one by one. A replica's `tick` counts its decode passes; a request that begins to
decode is entered in a heap by the tick at which it will finish, and in the count of those that cross a block
boundary at ticks congruent to its own. A pass then costs the same however many requests decode.
"""

from __future__ import annotations

from calc.simulation.kernels.blocks import context
from calc.simulation.kernels.heap import heap_push, heap_remove
from calc.simulation.kernels.layout import (
    CROSSING,
    DECODE,
    DUE_HEAP,
    MAX_GROUPS,
    NONE,
    PREFILL,
    PREFILLING,
    RING,
    WAITING,
    WAITING_HEAD,
    WAITING_TAIL,
    WINDOW_HEAP,
    Record,
    Replica,
    Requests,
    inlined,
)


def earlier(requests: Requests, one: int, other: int) -> bool:
    """Whether `one` arrived before `other`; at the same time the order of the table decides."""
    first, second = requests[one]["arrival"], requests[other]["arrival"]
    return bool(first < second or (first == second and one < other))


# ---- waiting


@inlined
def waiting_first(replica: Replica, settings: Record) -> int:
    """The request that is next to be admitted, or NONE."""
    for level in range(settings["classes"]):
        if replica.lists[WAITING_HEAD, level] != NONE:
            return int(replica.lists[WAITING_HEAD, level])
    return NONE


@inlined
def wait_last(requests: Requests, replica: Replica, settings: Record, request: int) -> None:
    """Queue a request behind those of its class."""
    level = int(requests[request]["priority"]) if settings["by_priority"] else 0
    tail = int(replica.lists[WAITING_TAIL, level])
    requests[request]["previous"] = tail
    requests[request]["next"] = NONE
    if tail == NONE:
        replica.lists[WAITING_HEAD, level] = request
    else:
        requests[tail]["next"] = request
    replica.lists[WAITING_TAIL, level] = request
    requests[request]["state"] = WAITING
    replica.state[0]["waiting"] += 1


def wait_again(requests: Requests, replica: Replica, settings: Record, request: int) -> None:
    """Queue a preempted request in front; by priority: among its class in order of arrival."""
    level = 0
    before = NONE
    after = int(replica.lists[WAITING_HEAD, 0])
    if settings["by_priority"]:
        level = int(requests[request]["priority"])
        after = int(replica.lists[WAITING_HEAD, level])
        while after != NONE and earlier(requests, after, request):
            before = after
            after = int(requests[after]["next"])
    requests[request]["previous"] = before
    requests[request]["next"] = after
    if before == NONE:
        replica.lists[WAITING_HEAD, level] = request
    else:
        requests[before]["next"] = request
    if after == NONE:
        replica.lists[WAITING_TAIL, level] = request
    else:
        requests[after]["previous"] = request
    requests[request]["state"] = WAITING
    replica.state[0]["waiting"] += 1


@inlined
def leave_waiting(requests: Requests, replica: Replica, settings: Record, request: int) -> None:
    """Take a request out of its waiting list."""
    level = int(requests[request]["priority"]) if settings["by_priority"] else 0
    before = int(requests[request]["previous"])
    after = int(requests[request]["next"])
    if before == NONE:
        replica.lists[WAITING_HEAD, level] = after
    else:
        requests[before]["next"] = after
    if after == NONE:
        replica.lists[WAITING_TAIL, level] = before
    else:
        requests[after]["previous"] = before
    replica.state[0]["waiting"] -= 1


# ---- running


@inlined
def start_running(requests: Requests, replica: Replica, request: int, now_s: float) -> None:
    """Append a request that has left the waiting list to the running list."""
    state = replica.state[0]
    tail = int(state["run_tail"])
    requests[request]["previous"] = tail
    requests[request]["next"] = NONE
    if tail == NONE:
        state["run_head"] = request
    else:
        requests[tail]["next"] = request
    state["run_tail"] = request
    requests[request]["state"] = PREFILL
    state["running"] += 1
    state["seats"] += requests[request]["width"]
    if requests[request]["scheduled"] < 0:
        requests[request]["scheduled"] = now_s


@inlined
def leave_running(requests: Requests, replica: Replica, request: int) -> None:
    """Take a request out of the running list."""
    state = replica.state[0]
    before = int(requests[request]["previous"])
    after = int(requests[request]["next"])
    if before == NONE:
        state["run_head"] = after
    else:
        requests[before]["next"] = after
    if after == NONE:
        state["run_tail"] = before
    else:
        requests[after]["previous"] = before
    state["running"] -= 1
    state["seats"] -= requests[request]["width"]


@inlined
def drop_prefilling(replica: Replica, request: int) -> None:
    """Take a request out of the list of those that are partly prefilled."""
    state = replica.state[0]
    kept = 0
    for i in range(state["prefilling"]):
        if replica.lists[PREFILLING, i] != request:
            replica.lists[PREFILLING, kept] = replica.lists[PREFILLING, i]
            kept += 1
    state["prefilling"] = kept


# ---- the decoding set


@inlined
def enter_crossing(requests: Requests, replica: Replica, settings: Record, request: int) -> None:
    """Note at which ticks a decoding request needs a new block: when its context is a multiple of the block."""
    if settings["reserve_all"] or settings["drafts"]:
        return
    size = int(settings["block_size"])
    place = int(replica.state[0]["tick"] - context(requests, replica.state[0], request)) % size
    replica.lists[CROSSING, place] += requests[request]["width"]
    if settings["cached"]:
        first = int(replica.lists[RING, place])
        requests[request]["ring_next"] = first
        requests[request]["ring_previous"] = NONE
        if first != NONE:
            requests[first]["ring_previous"] = request
        replica.lists[RING, place] = request


@inlined
def leave_crossing(requests: Requests, replica: Replica, settings: Record, request: int) -> None:
    """Undo `enter_crossing`."""
    if settings["reserve_all"] or settings["drafts"]:
        return
    size = int(settings["block_size"])
    place = int(replica.state[0]["tick"] - context(requests, replica.state[0], request)) % size
    replica.lists[CROSSING, place] -= requests[request]["width"]
    if settings["cached"]:
        before = int(requests[request]["ring_previous"])
        after = int(requests[request]["ring_next"])
        if before == NONE:
            replica.lists[RING, place] = after
        else:
            requests[before]["ring_next"] = after
        if after != NONE:
            requests[after]["ring_previous"] = before


def enter_decoding(
    requests: Requests, replica: Replica, settings: Record, request: int, generated: int, joined_s: float
) -> None:
    """Let a request decode from the next pass on; its last token came out at `joined_s`."""
    state = replica.state[0]
    attended = int(requests[request]["target"]) + 1
    width = int(requests[request]["width"])
    requests[request]["due"] = state["tick"] + requests[request]["output"] - generated
    requests[request]["state"] = DECODE
    requests[request]["emit"] = joined_s
    heap_push(replica.lists[DUE_HEAP], state["heap"], request, requests["due"], requests["position"])
    state["heap"] += 1
    state["decoding"] += width
    state["kv_tokens"] += width * attended
    state["copies"] += requests[request]["copies"]
    enter_crossing(requests, replica, settings, request)
    window = int(settings["window"])
    if window > 0:
        state["window_tokens"] += width * min(attended, window)
        if attended < window:
            requests[request]["window_due"] = state["tick"] + window - attended
            heap_push(
                replica.lists[WINDOW_HEAP],
                state["window_heap"],
                request,
                requests["window_due"],
                requests["window_position"],
            )
            state["window_heap"] += 1
            state["below_window"] += width
    groups = int(state["groups"])
    if groups > 0 and (state["joined_at"][groups - 1] == joined_s or groups == MAX_GROUPS):
        state["joined_count"][groups - 1] += width
    else:
        state["joined_at"][groups] = joined_s
        state["joined_count"][groups] = width
        state["groups"] = groups + 1


def leave_decoding(requests: Requests, replica: Replica, settings: Record, request: int) -> None:
    """Take a request out of the decoding set; its context is still that of the present tick."""
    state = replica.state[0]
    attended = context(requests, state, request) + 1
    leave_crossing(requests, replica, settings, request)
    heap_remove(
        replica.lists[DUE_HEAP],
        state["heap"],
        int(requests[request]["position"]),
        requests["due"],
        requests["position"],
    )
    state["heap"] -= 1
    width = int(requests[request]["width"])
    state["decoding"] -= width
    state["kv_tokens"] -= width * attended
    state["copies"] -= requests[request]["copies"]
    window = int(settings["window"])
    if window > 0:
        state["window_tokens"] -= width * min(attended, window)
        if requests[request]["window_position"] != NONE:
            heap_remove(
                replica.lists[WINDOW_HEAP],
                state["window_heap"],
                int(requests[request]["window_position"]),
                requests["window_due"],
                requests["window_position"],
            )
            state["window_heap"] -= 1
            state["below_window"] -= width


def last_token_s(requests: Requests, replica: Replica, request: int) -> float:
    """When a decoding request last got a token; it is counted out of its group of newcomers, if it is in one."""
    state = replica.state[0]
    if requests[request]["late"] >= 0:
        since = float(requests[request]["late"])
        requests[request]["late"] = -1.0
        state["late"] -= 1
        return since
    joined = float(requests[request]["emit"])
    for i in range(state["groups"]):
        if replica.state[0]["joined_at"][i] == joined:
            replica.state[0]["joined_count"][i] -= requests[request]["width"]
            return joined
    return float(state["last_emit"])
