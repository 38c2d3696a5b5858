"""One pass, and leaps over many equal ones: what they cost, and what they do to the replica."""

from __future__ import annotations

from calc.simulation.kernels.beams import advance_beams
from calc.simulation.kernels.blocks import ceil_div, context, list_blocks, take_blocks
from calc.simulation.kernels.clock import (
    add_gap,
    add_growing_gaps,
    leap_seconds,
    record_pass,
    step_seconds,
    steps_until,
)
from calc.simulation.kernels.heap import heap_remove
from calc.simulation.kernels.layout import (
    CHUNK_REQUEST,
    CHUNK_TOKENS,
    CROSSING,
    DUE_HEAP,
    NEVER,
    NONE,
    PREFILLING,
    RING,
    WINDOW_HEAP,
    Record,
    Replica,
    Requests,
    Run,
    inlined,
)
from calc.simulation.kernels.leaving import complete_prefill, finish_due, next_wake
from calc.simulation.kernels.sequences import drop_prefilling
from calc.simulation.kernels.speculation import accept_drafts, pass_seconds
from calc.simulation.kernels.swapping import swap_seconds


@inlined
def crossing_need(requests: Requests, replica: Replica, settings: Record, steps: int) -> int:
    """Blocks that the decoding requests need for their next `steps` tokens."""
    if settings["reserve_all"]:
        return 0
    if settings["drafts"]:
        need = 0
        for i in range(replica.state[0]["heap"]):
            need += decode_need(requests, replica, settings, int(replica.lists[DUE_HEAP, i]))
        return need
    size = int(settings["block_size"])
    need = (steps // size) * int(replica.state[0]["decoding"]) + int(replica.state[0]["copies"])
    place = int(replica.state[0]["tick"]) % size
    for _ in range(steps % size):
        need += int(replica.lists[CROSSING, place])
        place = place + 1 if place + 1 < size else 0
    return need


@inlined
def give_crossing_blocks(requests: Requests, replica: Replica, settings: Record, steps: int) -> None:
    """Give the decoding requests the blocks for their next `steps` tokens, and list those that have become full."""
    if settings["reserve_all"]:
        return
    state = replica.state[0]
    if settings["drafts"]:
        for i in range(state["heap"]):
            request = int(replica.lists[DUE_HEAP, i])
            need = decode_need(requests, replica, settings, request)
            take_blocks(requests, replica, settings, request, need)
        return
    if not settings["cached"]:
        state["free"] -= crossing_need(requests, replica, settings, steps)
        state["peak_blocks"] = max(state["peak_blocks"], settings["num_blocks"] - state["free"])
        return
    size = int(settings["block_size"])
    for tick in range(int(state["tick"]), int(state["tick"]) + steps):
        request = int(replica.lists[RING, tick % size])
        while request != NONE:
            held = int(requests[request]["held"])
            if settings["list_decoded"]:
                list_blocks(requests, replica, settings, request, (held - 1) * size, held * size)
            take_blocks(requests, replica, settings, request, 1)
            request = int(requests[request]["ring_next"])


@inlined
def advance_decoding(
    requests: Requests, replica: Replica, settings: Record, steps: int, held: int, held_below: int
) -> None:
    """Every decoding request has `steps` more tokens, but for `held` ones, `held_below` of them below the window."""
    state = replica.state[0]
    state["tick"] += steps
    state["kv_tokens"] += (int(state["decoding"]) - held) * steps
    if settings["window"]:
        state["window_tokens"] += (int(state["below_window"]) - held_below) * steps
        heap = replica.lists[WINDOW_HEAP]
        while state["window_heap"] > 0 and requests[heap[0]]["window_due"] <= state["tick"]:
            state["below_window"] -= requests[heap[0]]["width"]
            heap_remove(heap, state["window_heap"], 0, requests["window_due"], requests["window_position"])
            state["window_heap"] -= 1


@inlined
def count_first_gaps(replica: Replica, end_s: float, decoding: int) -> int:
    """Count the gaps of a decode pass that ends at `end_s`; newcomers' begin when they joined. Returns newcomers."""
    state = replica.state[0]
    newcomers = 0
    for i in range(state["groups"]):
        count = int(replica.state[0]["joined_count"][i])
        add_gap(replica, end_s - float(replica.state[0]["joined_at"][i]), count)
        newcomers += count
    state["groups"] = 0
    add_gap(replica, end_s - float(state["last_emit"]), decoding - newcomers)
    return newcomers


def finish_chunks(requests: Requests, replica: Replica, run: Run, chunks: int, most_decoding: int) -> None:
    """Book the prompt tokens of a pass that has just ended; requests whose prompt is complete go on to decode."""
    settings = run.settings
    state = replica.state[0]
    for i in range(chunks):
        request = int(replica.lists[CHUNK_REQUEST, i])
        before = int(requests[request]["computed"])
        after = before + int(replica.lists[CHUNK_TOKENS, i])
        requests[request]["computed"] = after
        if settings["register_late"]:
            list_blocks(requests, replica, settings, request, before, after)
        if after == requests[request]["target"]:
            drop_prefilling(replica, request)
            complete_prefill(requests, replica, run, request, most_decoding)
        elif not in_prefilling(replica, request):
            replica.lists[PREFILLING, state["prefilling"]] = request
            state["prefilling"] += 1


@inlined
def in_prefilling(replica: Replica, request: int) -> bool:
    found = False
    for i in range(replica.state[0]["prefilling"]):
        found = found or replica.lists[PREFILLING, i] == request
    return found


def end_pass(
    requests: Requests,
    replica: Replica,
    run: Run,
    chunks: int,
    attention: float,
    decodes: bool,
    most_decoding: int,
) -> None:
    """Run one planned pass: `chunks` prompt chunks, and a token for every decoding request if `decodes`."""
    state = replica.state[0]
    prefill_tokens = 0
    for i in range(chunks):
        prefill_tokens += int(replica.lists[CHUNK_TOKENS, i])
    decoding = int(state["decoding"]) if decodes else 0
    seconds = pass_seconds(
        run,
        prefill_tokens,
        attention,
        decoding,
        int(state["kv_tokens"]) if decodes else 0,
        int(state["window_tokens"]) if decodes else 0,
    )
    start_s = float(state["now"])
    state["now"] = start_s + seconds + swap_seconds(replica, run.settings)
    state["last_finished"] = 0
    used = float(run.settings["num_blocks"] - state["free"])
    record_pass(replica, start_s, 1, prefill_tokens, decoding, used, chunks)
    if decoding:
        count_first_gaps(replica, float(state["now"]), decoding)
        state["last_emit"] = state["now"]
        advance_decoding(requests, replica, run.settings, 1, 0, 0)
        if run.settings["drafts"]:
            accept_drafts(requests, replica, run.settings)
        if run.settings["beams"]:
            advance_beams(requests, replica, run.settings)
        finish_due(requests, replica, run)
    finish_chunks(requests, replica, run, chunks, most_decoding)
    next_wake(replica)


def leap_steps(
    requests: Requests, replica: Replica, run: Run, first_s: float, growth_s: float, cut_s: float
) -> int:
    """How many equal decode passes may be taken at once; 0 if the next one lacks blocks.

    Bounds: the first request to finish, the first to reach the window, the blocks, and the time `cut_s` at which
    an arrival could be admitted.
    """
    settings = run.settings
    state = replica.state[0]
    if settings["ttl_s"] < NEVER and state["waiting"] > 0:
        return 0  # what a waiting prompt hits may expire meanwhile
    steps = int(requests[replica.lists[DUE_HEAP, 0]]["due"] - state["tick"])
    if state["window_heap"] > 0:
        steps = min(steps, int(requests[replica.lists[WINDOW_HEAP, 0]]["window_due"] - state["tick"]))
    free = int(state["free"]) - int(settings["spare"])
    if crossing_need(requests, replica, settings, steps) > free:
        low, high = 0, steps
        while high - low > 1:
            middle = (low + high) >> 1
            if crossing_need(requests, replica, settings, middle) <= free:
                low = middle
            else:
                high = middle
        steps = low
    if settings["shared_text"] and state["waiting"] > 0:
        size = int(settings["block_size"])
        place = int(state["tick"]) % size
        quiet = 0
        while quiet < steps and replica.lists[CROSSING, (place + quiet) % size] == 0:
            quiet += 1
            if quiet >= size:
                quiet = steps
        steps = min(steps, quiet)
    if steps > 1 and cut_s < NEVER:
        steps = steps_until(first_s, growth_s, cut_s - float(state["now"]), steps)
    return steps


def leap(requests: Requests, replica: Replica, run: Run, cut_s: float) -> int:
    """Take as many equal decode passes at once as nothing can interrupt; returns how many (0: take none).

    Between them nobody is admitted, preempted or finished, so that only the clock, the contexts and the blocks move.
    """
    settings = run.settings
    state = replica.state[0]
    decoding = int(state["decoding"])
    first_s = step_seconds(run.table, 0, 0.0, decoding, int(state["kv_tokens"]), int(state["window_tokens"]))
    growth_s = float(decoding * run.table["kv_s"] + int(state["below_window"]) * run.table["window_s"])
    steps = leap_steps(requests, replica, run, first_s, growth_s, cut_s)
    if steps < 2:
        return 0
    start_s = float(state["now"])
    used = float(settings["num_blocks"] - state["free"])
    give_crossing_blocks(requests, replica, settings, steps)
    used = (used + float(settings["num_blocks"] - state["free"])) / 2
    count_first_gaps(replica, start_s + first_s, decoding)
    add_growing_gaps(replica, first_s + growth_s, growth_s, steps - 1, decoding)
    state["now"] = start_s + leap_seconds(first_s, growth_s, steps)
    state["last_emit"] = state["now"]
    state["last_finished"] = 0
    record_pass(replica, start_s, steps, 0, decoding, used, 0)
    advance_decoding(requests, replica, settings, steps, 0, 0)
    finish_due(requests, replica, run)
    next_wake(replica)
    return steps


def decode_need(requests: Requests, replica: Replica, settings: Record, request: int) -> int:
    """Blocks that one decoding request needs for its next token and draft: 1 for each sample when its context fills its blocks.

    Beams copy the last blocks that they share.
    """
    if settings["reserve_all"]:
        return 0
    if settings["drafts"]:
        tokens = context(requests, replica.state[0], request) + 1 + int(settings["drafts"])
        return max(0, ceil_div(tokens, int(settings["block_size"])) - int(requests[request]["held"]))
    crosses = context(requests, replica.state[0], request) % int(settings["block_size"]) == 0
    return int(requests[request]["width"] if crosses else requests[request]["copies"])
