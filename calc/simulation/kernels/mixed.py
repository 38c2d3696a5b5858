"""Engines that mix prefill and decode in every pass: vLLM V1, Sarathi-Serve, Orca. Rules differ by settings.

One pass: a budget of tokens; running requests first, one token for each that decodes, a chunk for each that is partly
prefilled; blocks are given as contexts grow, and when none is left the last running request (by priority: the lowest)
is preempted and computed anew later. Then waiting requests from the head while budget, places and blocks last; the
first that cannot be placed stops the walk.

Sources: vllm/v1/core/sched/scheduler.py (running first, no admission in a pass that preempted, a prompt is admitted
if the whole of it fits); microsoft/vidur's Sarathi replica scheduler (prompt blocks reserved whole, a watermark, a free
block must remain for any decode); Yu et al., Orca, OSDI 2022 (whole prompts, blocks for the longest length).
"""

from __future__ import annotations

from calc.simulation.kernels.admission import admit, give_chunk_blocks, may_admit
from calc.simulation.kernels.blocks import ceil_div
from calc.simulation.kernels.chunks import add_chunk, first_chunk
from calc.simulation.kernels.layout import (
    NEVER,
    PREFILLING,
    Record,
    Replica,
    Requests,
    Run,
)
from calc.simulation.kernels.passes import (
    crossing_need,
    end_pass,
    give_crossing_blocks,
    leap,
)
from calc.simulation.kernels.pressure import pressed_pass


def plan_running(requests: Requests, replica: Replica, settings: Record) -> tuple[bool, int, float, int]:
    """Plan the running requests if none lacks budget or blocks: (it worked, chunks, attention, budget left).

    Nothing is changed if it did not work.
    """
    state = replica.state[0]
    size = int(settings["block_size"])
    budget = int(settings["budget"]) - int(state["decoding"]) * (1 + int(settings["drafts"]))
    need = crossing_need(requests, replica, settings, 1)
    attention = 0.0
    lone_tail = state["prefilling"] == 1 and replica.lists[PREFILLING, 0] == state["run_tail"]
    for i in range(state["prefilling"]):
        request = int(replica.lists[PREFILLING, i])
        computed = int(requests[request]["computed"])
        chunk = first_chunk(requests, settings, request, computed, budget)
        if (
            chunk < first_chunk(requests, settings, request, computed, int(settings["budget"]))
            and not lone_tail
        ):
            return False, 0, 0.0, 0
        if chunk <= 0:
            return False, 0, 0.0, 0
        attention += add_chunk(requests, replica, i, request, chunk)
        need += max(0, ceil_div(computed + chunk, size) - int(requests[request]["held"]))
        budget -= chunk
    if state["late"] > 0 or need > state["free"] - (settings["spare"] if state["decoding"] > 0 else 0):
        return False, 0, 0.0, 0
    give_crossing_blocks(requests, replica, settings, 1)
    for i in range(state["prefilling"]):
        give_chunk_blocks(requests, replica, settings, i)
    return True, int(state["prefilling"]), attention, budget


def mixed_pass(requests: Requests, replica: Replica, run: Run, limit_s: float) -> None:
    """The next pass of a replica that has something to do, or a leap over equal decode passes.

    `limit_s`: when the next arrival may come; a leap is cut there if that arrival could matter.
    """
    settings = run.settings
    state = replica.state[0]
    if settings["skip"] and state["decoding"] > 0 and state["prefilling"] == 0 and state["late"] == 0:
        blocked = state["waiting"] + state["ready"] > 0
        free = int(state["free"]) - crossing_need(requests, replica, settings, 1) if blocked else 0
        budget = int(settings["budget"]) - int(state["decoding"])
        if not (blocked and may_admit(requests, replica, settings, budget, free)):
            full = state["running"] >= settings["max_seqs"]
            open_to_arrivals = settings["feedback"] or settings["by_priority"] or not (blocked or full)
            if leap(requests, replica, run, limit_s if open_to_arrivals else NEVER) > 0:
                return
    planned, chunks, attention, budget = plan_running(requests, replica, settings)
    if planned:
        chunks, more = admit(requests, replica, run, chunks, budget)
        if state["running"] == 0 and state["arriving"] + state["owed"] > 0:
            state["wake"] = NEVER  # until a text has arrived, here or from here
            return
        end_pass(requests, replica, run, chunks, attention + more, True, int(settings["max_seqs"]))
    else:
        pressed_pass(requests, replica, run, True)
