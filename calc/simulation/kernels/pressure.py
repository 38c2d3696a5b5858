"""Engines that mix prefill and decode: a pass in which some running request lacks budget or blocks.

The engine's own walk over the running requests, one by one, with preemption on the way.
"""

from __future__ import annotations

from calc.simulation.kernels.admission import admit, give_chunk_blocks
from calc.simulation.kernels.beams import advance_beams
from calc.simulation.kernels.blocks import ceil_div, context, list_blocks, take_blocks
from calc.simulation.kernels.chunks import add_chunk, first_chunk
from calc.simulation.kernels.clock import add_gap, record_pass
from calc.simulation.kernels.heap import heap_down
from calc.simulation.kernels.layout import (
    CHUNK_REQUEST,
    CHUNK_TOKENS,
    DECODE,
    DUE_HEAP,
    NONE,
    WINDOW_HEAP,
    Record,
    Replica,
    Requests,
    Run,
)
from calc.simulation.kernels.leaving import finish_due, next_wake, preempt
from calc.simulation.kernels.passes import (
    advance_decoding,
    count_first_gaps,
    decode_need,
    finish_chunks,
)
from calc.simulation.kernels.sequences import (
    earlier,
    enter_crossing,
    last_token_s,
    leave_crossing,
    wait_again,
)
from calc.simulation.kernels.speculation import accept_drafts, pass_seconds
from calc.simulation.kernels.swapping import swap_out, swap_seconds


def victim(requests: Requests, replica: Replica, settings: Record) -> int:
    """Whom to preempt: the last running request; by priority the lowest class, there the last arrival."""
    worst = int(replica.state[0]["run_tail"])
    if settings["by_priority"]:
        request = int(replica.state[0]["run_head"])
        while request != NONE:
            level, lowest = requests[request]["priority"], requests[worst]["priority"]
            if level > lowest or (level == lowest and earlier(requests, worst, request)):
                worst = request
            request = int(requests[request]["next"])
    return worst


def evict(requests: Requests, replica: Replica, settings: Record, request: int, mark: int) -> int:
    """Preempt a request, whatever this pass had given it before; returns the budget that comes back."""
    budget = 0
    if requests[request]["mark"] == mark:
        requests[request]["mark"] = 0
        if requests[request]["state"] == DECODE:
            budget = int(requests[request]["width"]) * (1 + int(settings["drafts"]))
            if not settings["cached"] and not settings["drafts"]:
                replica.state[0]["free"] += decode_need(requests, replica, settings, request)
        else:
            for i in range(replica.state[0]["running"] + 1):
                if replica.lists[CHUNK_REQUEST, i] == request:
                    budget = int(replica.lists[CHUNK_TOKENS, i])
                    replica.lists[CHUNK_TOKENS, i] = 0
                    break
    if not (settings["swaps"] and swap_out(requests, replica, settings, request)):
        if requests[request]["width"] > 1:
            replica.state[0]["host_full"] = 1
        preempt(requests, replica, settings, request)
        wait_again(requests, replica, settings, request)
    return budget


def give_one(
    requests: Requests, replica: Replica, settings: Record, request: int, chunks: int, budget: int
) -> int:
    """Blocks that a running request needs for its share of the pass; a chunk is noted at place `chunks`."""
    if requests[request]["state"] == DECODE:
        return decode_need(requests, replica, settings, request)
    computed = int(requests[request]["computed"])
    chunk = first_chunk(requests, settings, request, computed, budget)
    replica.lists[CHUNK_REQUEST, chunks] = request
    replica.lists[CHUNK_TOKENS, chunks] = chunk
    return max(0, ceil_div(computed + chunk, int(settings["block_size"])) - int(requests[request]["held"]))


def take_one(
    requests: Requests, replica: Replica, settings: Record, request: int, chunks: int, need: int
) -> int:
    """Book a running request into the pass; returns the tokens that it takes of the budget."""
    size = int(settings["block_size"])
    if requests[request]["state"] != DECODE:
        give_chunk_blocks(requests, replica, settings, chunks)
        return int(replica.lists[CHUNK_TOKENS, chunks])
    if need and settings["drafts"]:
        take_blocks(requests, replica, settings, request, need)
    elif need:
        if settings["cached"]:
            held = int(requests[request]["held"])
            list_blocks(requests, replica, settings, request, (held - 1) * size, held * size)
            take_blocks(requests, replica, settings, request, need)
        else:
            replica.state[0]["free"] -= need
    return int(requests[request]["width"]) * (1 + int(settings["drafts"]))


def make_room(
    requests: Requests, replica: Replica, settings: Record, request: int, need: int, mark: int
) -> tuple[bool, int, int]:
    """Preempt until `request` can have its blocks: (it can, budget that came back, requests preempted).

    It cannot when its turn to be preempted came first.
    """
    state = replica.state[0]
    budget = 0
    preempted = 0
    spare = 0
    if settings["spare"] and requests[request]["state"] == DECODE:
        spare = int(requests[request]["width"])  # a free block for each sequence, needed or not
    while max(need, spare) > state["free"]:
        loser = victim(requests, replica, settings)
        budget += evict(requests, replica, settings, loser, mark)
        preempted += 1
        if loser == request:
            return False, budget, preempted
    return True, budget, preempted


def walk_running(requests: Requests, replica: Replica, settings: Record) -> tuple[int, int, int]:
    """Give each running request its share in order, preempting for it; (chunks, budget left, preempted)."""
    state = replica.state[0]
    mark = int(state["passes"]) + 1
    budget = int(settings["budget"])
    chunks = 0
    preempted = 0
    request = int(state["run_head"])
    each = 1 + int(settings["drafts"])
    while request != NONE and budget > 0:
        if requests[request]["state"] == DECODE and budget < each:
            break
        need = give_one(requests, replica, settings, request, chunks, budget)
        fits, returned, lost = make_room(requests, replica, settings, request, need, mark)
        budget += returned
        preempted += lost
        if not fits:
            break
        requests[request]["mark"] = mark
        taken = take_one(requests, replica, settings, request, chunks, need)
        budget -= taken
        if requests[request]["state"] != DECODE:
            chunks += 1
        request = int(requests[request]["next"])
    return drop_empty_chunks(replica, chunks), budget, preempted


def drop_empty_chunks(replica: Replica, chunks: int) -> int:
    """Close the gaps that preempted requests left among the chunks of the pass."""
    kept = 0
    for i in range(chunks):
        if replica.lists[CHUNK_TOKENS, i] > 0:
            replica.lists[CHUNK_REQUEST, kept] = replica.lists[CHUNK_REQUEST, i]
            replica.lists[CHUNK_TOKENS, kept] = replica.lists[CHUNK_TOKENS, i]
            kept += 1
    return kept


def hold_back(requests: Requests, replica: Replica, settings: Record) -> tuple[int, int, int, int]:
    """Leave out the decoding requests that the walk did not reach.

    Their finish and their block crossings move one tick on, so that the coming tick passes them by. Returns how many
    they are, the tokens and window tokens that they would have read, and how many of them are below the window.
    """
    state = replica.state[0]
    mark = int(state["passes"]) + 1
    held = tokens = window_tokens = below = 0
    request = int(state["run_head"])
    while request != NONE:
        if requests[request]["state"] == DECODE and requests[request]["mark"] != mark:
            attended = context(requests, state, request) + 1
            width = int(requests[request]["width"])
            held += width
            tokens += width * attended
            window_tokens += width * min(attended, int(settings["window"]))
            if requests[request]["late"] < 0:
                requests[request]["late"] = last_token_s(requests, replica, request)
                state["late"] += 1
            below += postpone(requests, replica, settings, request)
        request = int(requests[request]["next"])
    return held, tokens, window_tokens, below


def postpone(requests: Requests, replica: Replica, settings: Record, request: int) -> int:
    """Move all that a decoding request will do one tick on; returns its sequences if they are below the window, else 0."""
    state = replica.state[0]
    leave_crossing(requests, replica, settings, request)
    requests[request]["due"] += 1
    place = int(requests[request]["position"])
    heap_down(replica.lists[DUE_HEAP], state["heap"], place, requests["due"], requests["position"])
    state["tick"] += 1
    enter_crossing(requests, replica, settings, request)
    state["tick"] -= 1
    place = int(requests[request]["window_position"])
    if settings["window"] == 0 or place == NONE:
        return 0
    requests[request]["window_due"] += 1
    heap = replica.lists[WINDOW_HEAP]
    heap_down(heap, state["window_heap"], place, requests["window_due"], requests["window_position"])
    return int(requests[request]["width"])


def count_late_gaps(requests: Requests, replica: Replica, end_s: float) -> int:
    """Count the gaps of decoding requests that had been left out and get their token now; returns how many."""
    state = replica.state[0]
    mark = int(state["passes"])
    counted = 0
    request = int(state["run_head"])
    while request != NONE and state["late"] > 0:
        if (
            requests[request]["state"] == DECODE
            and requests[request]["late"] >= 0
            and requests[request]["mark"] == mark
        ):
            width = int(requests[request]["width"])
            add_gap(replica, end_s - float(requests[request]["late"]), width)
            requests[request]["late"] = -1.0
            state["late"] -= 1
            counted += width
        request = int(requests[request]["next"])
    return counted


def pressed_pass(requests: Requests, replica: Replica, run: Run, admits: bool) -> None:
    """A pass in which some running request lacks budget or blocks; `admits`: it may take waiting requests in."""
    settings = run.settings
    state = replica.state[0]
    chunks, budget, preempted = walk_running(requests, replica, settings)
    attention = 0.0
    for i in range(chunks):
        attention += add_chunk(
            requests, replica, i, int(replica.lists[CHUNK_REQUEST, i]), int(replica.lists[CHUNK_TOKENS, i])
        )
    held, held_tokens, held_window, held_below = hold_back(requests, replica, settings)
    if admits and (preempted == 0 or settings["admit_after_preemption"]):
        chunks, more = admit(requests, replica, run, chunks, budget)
        attention += more
    prefill_tokens = 0
    for i in range(chunks):
        prefill_tokens += int(replica.lists[CHUNK_TOKENS, i])
    decoding = int(state["decoding"]) - held
    kv_tokens = int(state["kv_tokens"]) - held_tokens if decoding else 0
    window_tokens = int(state["window_tokens"]) - held_window if decoding else 0
    start_s = float(state["now"])
    seconds = pass_seconds(run, prefill_tokens, attention, decoding, kv_tokens, window_tokens)
    state["now"] = start_s + seconds + swap_seconds(replica, settings)
    state["last_finished"] = 0
    used = float(settings["num_blocks"] - state["free"])
    state["peak_blocks"] = max(state["peak_blocks"], settings["num_blocks"] - state["free"])
    record_pass(replica, start_s, 1, prefill_tokens, decoding, used, chunks)
    end_pressed_pass(requests, replica, run, chunks, held, held_below)


def end_pressed_pass(
    requests: Requests, replica: Replica, run: Run, chunks: int, held: int, held_below: int
) -> None:
    """Book what came out of a pass under pressure."""
    settings = run.settings
    state = replica.state[0]
    decoding = int(state["decoding"]) - held
    if decoding:
        caught_up = count_late_gaps(requests, replica, float(state["now"]))
        count_first_gaps(replica, float(state["now"]), decoding - caught_up)
        state["last_emit"] = state["now"]
    if decoding + held:
        advance_decoding(requests, replica, settings, 1, held, held_below)
    if decoding:
        if settings["drafts"]:
            accept_drafts(requests, replica, settings)
        if settings["beams"]:
            advance_beams(requests, replica, settings)
        finish_due(requests, replica, run)
    finish_chunks(requests, replica, run, chunks, int(settings["max_seqs"]))
    next_wake(replica)
