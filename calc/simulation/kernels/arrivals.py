"""Arrivals: when the next request comes, which replica gets it, and which replica moves next.

The replica whose next pass begins first moves first, and an arrival is handed out before any pass that begins at its
time or later. So a router sees every replica as it stands when the request arrives.
"""

from __future__ import annotations

from calc.simulation.kernels.heap import heap_remove
from calc.simulation.kernels.layout import (
    LEAST_OUTSTANDING,
    NEVER,
    NONE,
    RANDOM,
    ROUND_ROBIN,
    Replica,
    Replicas,
    Requests,
    Run,
    inlined,
    row,
)
from calc.simulation.kernels.sequences import wait_last
from calc.simulation.kernels.static import static_wake


@inlined
def next_given(requests: Requests, run: Run) -> int:
    """The next request with a given arrival time, or NONE."""
    place = int(run.world["arrived"])
    while place < len(requests) and requests[place]["follows"]:
        place += 1
    run.world["arrived"] = place
    return place if place < len(requests) else NONE


@inlined
def next_arrival(requests: Requests, run: Run) -> tuple[int, bool]:
    """(request that arrives next or NONE, whether it follows another one)."""
    given = next_given(requests, run)
    if run.world["heap"] > 0:
        follower = int(requests[0]["arrival_heap"])
        if given == NONE or requests[follower]["arrival"] < requests[given]["arrival"]:
            return follower, True
    return given, False


def outstanding(replica: Replica, now_s: float) -> int:
    """Requests that a replica holds at `now_s`: those that finish in the pass in flight are among them."""
    state = replica.state[0]
    count = int(state["waiting"] + state["running"])
    if state["now"] > now_s:
        count += int(state["last_finished"])
    return count


def choose_replica(requests: Requests, replicas: Replicas, run: Run, request: int) -> int:
    """The replica that gets a request."""
    count = int(run.settings["replicas"])
    router = int(run.settings["router"])
    if count == 1:
        return 0
    if router == ROUND_ROBIN:
        turn = int(run.world["robin"])
        run.world["robin"] = (turn + 1) % count
        return turn
    first = int(requests[request]["draw_one"])
    if router == RANDOM:
        return first
    now_s = float(requests[request]["arrival"])
    if router == LEAST_OUTSTANDING:
        best = 0
        for k in range(1, count):
            if outstanding(row(replicas, k), now_s) < outstanding(row(replicas, best), now_s):
                best = k
        return best
    second = int(requests[request]["draw_two"])
    if outstanding(row(replicas, second), now_s) < outstanding(row(replicas, first), now_s):
        return second
    return first


def hand_out(requests: Requests, replicas: Replicas, run: Run, request: int, follows: bool) -> None:
    """Let a request arrive: queue it at a replica, and wake that if it was idle."""
    world = run.world
    if follows:
        heap_remove(requests["arrival_heap"], world["heap"], 0, requests["arrival"], requests["position"])
        world["heap"] -= 1
    else:
        world["arrived"] += 1
    chosen = choose_replica(requests, replicas, run, request)
    requests[request]["replica"] = chosen
    replica = row(replicas, chosen)
    state = replica.state[0]
    if state["waiting"] + state["running"] == 0 or run.settings["pad"]:
        state["now"] = max(float(state["now"]), float(requests[request]["arrival"]))
    wait_last(requests, replica, run.settings, request)
    if run.settings["pad"]:
        static_wake(requests, replica, run.settings, False)
    else:
        state["wake"] = state["now"]


def flush_waiting(requests: Requests, replicas: Replicas, run: Run) -> int:
    """With no arrival to come, start a batch that waits for more; returns its replica, or NONE."""
    for k in range(run.settings["replicas"]):
        replica = row(replicas, k)
        if replica.state[0]["waiting"] > 0:
            static_wake(requests, replica, run.settings, True)
            return k
    return NONE


def next_move(requests: Requests, replicas: Replicas, run: Run) -> tuple[int, float]:
    """(replica that moves next, time at which something else may happen); (NONE, ...) when all is done."""
    settings = run.settings
    while True:
        request, follows = next_arrival(requests, run)
        arrival_s = float(requests[request]["arrival"]) if request != NONE else NEVER
        chosen = NONE
        first_s = arrival_s
        second_s = NEVER
        for k in range(settings["replicas"]):
            wake_s = float(replicas.state[k]["wake"])
            if wake_s < first_s:
                second_s = first_s if chosen != NONE else NEVER
                chosen, first_s = k, wake_s
            else:
                second_s = min(second_s, wake_s)
        if chosen != NONE:
            return chosen, min(arrival_s, second_s) if settings["successors"] else arrival_s
        if request == NONE:
            return flush_waiting(requests, replicas, run), NEVER
        hand_out(requests, replicas, run, request, follows)
