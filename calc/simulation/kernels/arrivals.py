"""Arrivals: when the next request comes, which replica gets it, and which replica moves next.

The replica whose next pass begins first moves first, and an arrival is handed out before any pass that begins at its
time or later. So a router sees every replica as it stands when the request arrives.
"""

from __future__ import annotations

from calc.simulation.kernels.blocks import hits_at
from calc.simulation.kernels.draws import ROUTE_ONE, ROUTE_TWO, pick
from calc.simulation.kernels.heap import heap_remove
from calc.simulation.kernels.layout import (
    CACHE_SHARE,
    LEAST_OUTSTANDING,
    MOST_APART,
    MOST_RATIO,
    NEVER,
    NONE,
    POWER_OF_TWO,
    PREFIX_AWARE,
    ROUND_ROBIN,
    Replica,
    Replicas,
    Requests,
    Run,
    Runs,
    inlined,
    row,
)
from calc.simulation.kernels.sequences import wait_last
from calc.simulation.kernels.static import static_wake
from calc.simulation.kernels.transfer import let_go, make_ready, next_event_s, next_landed, rouse


@inlined
def next_given(requests: Requests, run: Runs) -> int:
    """The next request with a given arrival time, or NONE."""
    place = int(run.world["arrived"])
    while place < len(requests) and requests[place]["follows"]:
        place += 1
    run.world["arrived"] = place
    return place if place < len(requests) else NONE


@inlined
def next_arrival(requests: Requests, run: Runs) -> tuple[int, bool]:
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
    count = int(state["waiting"] + state["running"] + state["ready"] + state["arriving"] + state["swapped"])
    if state["now"] > now_s:
        count += int(state["last_finished"])
    return count


def follow_prefix(requests: Requests, replicas: Replicas, run: Run, request: int, now_s: float) -> int:
    """The replica that holds the longest prefix of a request; the least loaded if none holds much or loads differ a lot."""
    settings = run.settings
    base = int(settings["first_replica"])
    longest = idle = base
    most_hits = -1
    least = most = outstanding(row(replicas, base), now_s)
    for k in range(base, base + int(settings["replicas"])):
        replica = row(replicas, k)
        load = outstanding(replica, now_s)
        if load < least:
            idle = k
        least, most = min(least, load), max(most, load)
        hits, _ = hits_at(requests, replica, settings, request, now_s)
        if hits > most_hits or (hits == most_hits and load < outstanding(row(replicas, longest), now_s)):
            longest, most_hits = k, hits
    apart = most - least > MOST_APART and most > MOST_RATIO * least
    known = most_hits * int(settings["block_size"]) > CACHE_SHARE * int(requests[request]["input"])
    return longest if known and not apart else idle


def choose_replica(requests: Requests, replicas: Replicas, run: Run, request: int, now_s: float) -> int:
    """The replica of a pool, whose `run` is given, that gets a request at `now_s`."""
    settings = run.settings
    count = int(settings["replicas"])
    router = int(settings["router"])
    base = int(settings["first_replica"])
    if count == 1:
        return base
    if router == ROUND_ROBIN:
        pool = int(settings["takes_over"])
        turn = int(run.world["robin"][pool])
        run.world["robin"][pool] = (turn + 1) % count
        return base + turn
    if router == PREFIX_AWARE:
        return follow_prefix(requests, replicas, run, request, now_s)
    seed = int(settings["seed"])
    best = base
    if router == LEAST_OUTSTANDING:
        for k in range(base + 1, base + count):
            if outstanding(row(replicas, k), now_s) < outstanding(row(replicas, best), now_s):
                best = k
    else:
        best = base + pick(seed, ROUTE_ONE, request, count)
    if router == POWER_OF_TWO:
        second = base + pick(seed, ROUTE_TWO, request, count)
        if outstanding(row(replicas, second), now_s) < outstanding(row(replicas, best), now_s):
            best = second
    return best


def hand_out(requests: Requests, replicas: Replicas, run: Run, request: int, follows: bool) -> None:
    """Let a request arrive: queue it at a replica, and wake that if it was idle."""
    world = run.world
    if follows:
        heap_remove(requests["arrival_heap"], world["heap"], 0, requests["arrival"], requests["position"])
        world["heap"] -= 1
    else:
        world["arrived"] += 1
    now_s = float(requests[request]["arrival"])
    chosen = choose_replica(requests, replicas, run, request, now_s)
    requests[request]["replica"] = chosen
    replica = row(replicas, chosen)
    state = replica.state[0]
    if state["wake"] >= NEVER or run.settings["pad"]:
        state["now"] = max(float(state["now"]), now_s)
    wait_last(requests, replica, run.settings, request)
    if run.settings["pad"]:
        static_wake(requests, replica, run.settings, False)
    else:
        state["wake"] = state["now"]


def settle(requests: Requests, replicas: Replicas, runs: Runs) -> None:
    """Let a request on its way arrive: in the queue of a decode replica, or with its text."""
    request = next_landed(runs)
    move = runs.moves[request]
    if move["landed"] < 0:
        decoding = Run(runs.settings[1], runs.world, runs.table[1], runs.draft[1])
        chosen = choose_replica(requests, replicas, decoding, request, float(move["event"]))
        requests[request]["replica"] = chosen
        replica = row(replicas, chosen)
        wait_last(requests, replica, decoding.settings, request)
        rouse(replica, float(move["event"]))
    else:
        if move["source"] != NONE:
            let_go(row(replicas, int(move["source"])), runs.settings[0], runs, request)
        replica = row(replicas, int(requests[request]["replica"]))
        settings = runs.settings[replica.state[0]["pool"]]
        make_ready(requests, replica, settings, request, float(move["landed"]))


def horizon(replicas: Replicas, runs: Runs, chosen: int, soonest_s: float) -> float:
    """Until when nothing can reach the replica `chosen` from outside; `soonest_s` is the next arrival or landing.

    In a closed loop any pass of another replica may bring an arrival. In a decode pool only passes of prefill
    replicas bring requests; those of other decode replicas can matter if a prefill replica waits for them.
    """
    settings = runs.settings[0]
    any_matters = bool(settings["successors"])
    if settings["hands_over"]:
        for k in range(settings["replicas"]):
            one = replicas.state[k]
            any_matters = any_matters or (one["wake"] >= NEVER and one["waiting"] > 0)
    for k in range(len(replicas.state)):
        if k != chosen and (any_matters or replicas.state[k]["pool"] == 0):
            soonest_s = min(soonest_s, float(replicas.state[k]["wake"]))
    return soonest_s


def flush_waiting(requests: Requests, replicas: Replicas, run: Run) -> int:
    """With no arrival to come, start a batch that waits for more; returns its replica, or NONE."""
    for k in range(run.settings["replicas"]):
        replica = row(replicas, k)
        if replica.state[0]["waiting"] > 0:
            static_wake(requests, replica, run.settings, True)
            return k
    return NONE


def next_move(requests: Requests, replicas: Replicas, runs: Runs, first_pool: Run) -> tuple[int, float]:
    """(replica that moves next, time at which something else may happen); (NONE, ...) when all is done.

    `first_pool`: the `Run` of the pool that takes arrivals.
    """
    while True:
        request, follows = next_arrival(requests, runs)
        arrival_s = float(requests[request]["arrival"]) if request != NONE else NEVER
        event_s = next_event_s(runs)
        chosen = NONE
        first_s = soonest_s = min(arrival_s, event_s)
        for k in range(len(replicas.state)):
            wake_s = float(replicas.state[k]["wake"])
            if wake_s < first_s:
                chosen, first_s = k, wake_s
        if chosen != NONE:
            if first_pool.settings["apart"]:
                return chosen, soonest_s
            return chosen, horizon(replicas, runs, chosen, soonest_s)
        if event_s < NEVER and event_s <= arrival_s:
            settle(requests, replicas, runs)
        elif request == NONE:
            return flush_waiting(requests, replicas, first_pool), NEVER
        else:
            hand_out(requests, replicas, first_pool, request, follows)
