"""Speculative decoding: a draft proposes tokens, the pass checks them all, and a request keeps those up to the first wrong one.

Every decoding request takes one token a pass by the replica's tick; what it accepted on top moves its finish nearer. The
accepted count is drawn by (seed, request, tokens so far), so that it is the same whatever else happened. Blocks are held
for the whole draft before a pass, and stay when tokens were rejected, as vLLM's lookahead slots do.
"""

from __future__ import annotations

from calc.simulation.kernels.blocks import context, list_blocks
from calc.simulation.kernels.clock import add_gap, step_seconds
from calc.simulation.kernels.draws import ACCEPT, uniform
from calc.simulation.kernels.heap import heap_remove, heap_up
from calc.simulation.kernels.layout import (
    DECODE,
    DUE_HEAP,
    NONE,
    SERIES_BINS,
    SERIES_DECODE,
    WINDOW_HEAP,
    Record,
    Replica,
    Requests,
    Run,
    inlined,
)


@inlined
def pass_seconds(
    run: Run, prefill_tokens: int, attention: float, decoding: int, kv_tokens: int, window_tokens: int
) -> float:
    """Seconds of a pass: with drafts, k draft steps and one that brings k + 1 tokens of each decoding request."""
    drafts = int(run.settings["drafts"])
    tokens = decoding * (1 + drafts)
    seconds = step_seconds(run.table, prefill_tokens, attention, tokens, kv_tokens, window_tokens)
    if drafts > 0 and decoding > 0:
        seconds += drafts * step_seconds(run.draft, 0, 0.0, decoding, kv_tokens, window_tokens)
    return seconds


@inlined
def accepted_drafts(settings: Record, request: int, generated: int) -> int:
    """Drafts that a request keeps when it has `generated` tokens: P(at least j) = acceptance^j, cut at the draft's length."""
    number = uniform(int(settings["seed"]), ACCEPT, request, generated)
    kept = 0
    chance = float(settings["acceptance"])
    while kept < settings["drafts"] and number < chance:
        kept += 1
        chance *= float(settings["acceptance"])
    return kept


def bring_forward(requests: Requests, replica: Replica, settings: Record, request: int, tokens: int) -> None:
    """A decoding request has `tokens` more than the tick says: move all that it will do so many ticks nearer."""
    state = replica.state[0]
    attended = context(requests, state, request) + 1
    requests[request]["due"] -= tokens
    heap_up(
        replica.lists[DUE_HEAP], int(requests[request]["position"]), requests["due"], requests["position"]
    )
    state["kv_tokens"] += tokens
    window = int(settings["window"])
    if window > 0:
        state["window_tokens"] += min(attended + tokens, window) - min(attended, window)
        place = int(requests[request]["window_position"])
        if place != NONE:
            requests[request]["window_due"] -= tokens
            heap = replica.lists[WINDOW_HEAP]
            heap_up(heap, place, requests["window_due"], requests["window_position"])
            if requests[request]["window_due"] <= state["tick"]:
                place = int(requests[request]["window_position"])
                heap_remove(
                    heap, state["window_heap"], place, requests["window_due"], requests["window_position"]
                )
                state["window_heap"] -= 1
                state["below_window"] -= 1


def accept_drafts(requests: Requests, replica: Replica, settings: Record) -> None:
    """After a pass in which every decoding request, but those left out, took one token: give them what they accepted."""
    state = replica.state[0]
    more = 0
    request = int(state["run_head"])
    while request != NONE:
        if requests[request]["state"] == DECODE and requests[request]["late"] < 0:
            rest = int(requests[request]["due"] - state["tick"])
            kept = accepted_drafts(settings, request, int(requests[request]["output"]) - rest - 1)
            state["drafted_passes"] += 1
            state["drafted_tokens"] += 1 + kept
            before = context(requests, state, request) - 1
            kept = min(kept, rest)
            if kept > 0:
                bring_forward(requests, replica, settings, request, kept)
                add_gap(replica, 0.0, kept)
                more += kept
            if settings["list_decoded"]:
                list_blocks(requests, replica, settings, request, before, before + 1 + kept)
        request = int(requests[request]["next"])
    state["decode_tokens"] += more
    place = min(int(state["now"] / state["series_width_s"]), SERIES_BINS - 1)
    replica.state[0]["series"][SERIES_DECODE, place] += more
