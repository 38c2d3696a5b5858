"""vLLM before V1: a pass of whole prompts if any can start, else one token for each running sequence; preemption by swap.

Prompts are padded to the longest of their pass. A sequence decodes only if a block is free for each sample of its group,
needed or not; else the last arrival is preempted: computed anew, or swapped to host memory and back before any new prompt
starts. The pass in which blocks are swapped is longer by their copy.

A request may be a group of `width` samples that write in step: full blocks of the prompt are held once, the last one is
copied for each sample (the copies are taken with the prompt, a pass before they are written).

Source: vLLM 0.2 core/scheduler.py and block_manager.py (watermark 1%, swapped groups first, one block for each sequence);
microsoft/vidur's vLLM replica scheduler. Ignores: samples that end at different lengths. Beams: see `beams`.
"""

from __future__ import annotations

from calc.simulation.kernels.blocks import ceil_div, take_blocks
from calc.simulation.kernels.chunks import add_chunk
from calc.simulation.kernels.groups import copies
from calc.simulation.kernels.layout import NEVER, Record, Replica, Requests, Run
from calc.simulation.kernels.passes import crossing_need, decode_need, end_pass, give_crossing_blocks, leap
from calc.simulation.kernels.pressure import pressed_pass
from calc.simulation.kernels.sequences import enter_decoding, leave_waiting, start_running, waiting_first


def plan_whole_prompts(requests: Requests, replica: Replica, run: Run) -> tuple[int, float]:
    """Admit waiting prompts, whole; returns the number of chunks and their attention. None while anybody is swapped."""
    settings = run.settings
    state = replica.state[0]
    size = int(settings["block_size"])
    chunks = longest = 0
    attention = 0.0
    while state["waiting"] > 0 and state["swapped"] == 0:
        request = waiting_first(replica, settings)
        tokens = int(requests[request]["target"])
        longest = max(longest, tokens)
        new = ceil_div(tokens, size) + copies(requests, settings, request)
        if (
            (chunks + 1) * longest > settings["budget"]
            or new > state["free"] - settings["watermark"]
            or state["seats"] + requests[request]["width"] > settings["max_seqs"]
        ):
            break
        leave_waiting(requests, replica, settings, request)
        start_running(requests, replica, request, float(state["now"]))
        take_blocks(requests, replica, settings, request, new)
        requests[request]["computed"] = 0
        attention += add_chunk(requests, replica, chunks, request, tokens)
        chunks += 1
    return chunks, attention


def may_swap_in(requests: Requests, replica: Replica, settings: Record, free: int) -> bool:
    """Whether the first swapped request can come back: its blocks, one more for each sample, and the watermark."""
    state = replica.state[0]
    if state["swapped"] == 0:
        return False
    request = int(state["swap_head"])
    width = int(requests[request]["width"])
    need = int(requests[request]["held"]) + width
    return bool(need <= free - settings["watermark"] and state["seats"] + width <= settings["max_seqs"])


def swap_in(requests: Requests, replica: Replica, settings: Record) -> None:
    """Bring back swapped requests while they fit; they decode in this pass, and have the block for it."""
    state = replica.state[0]
    while may_swap_in(requests, replica, settings, int(state["free"])):
        request = int(state["swap_head"])
        state["swap_head"] = requests[request]["next"]
        state["swapped"] -= 1
        back = int(requests[request]["held"])
        state["host_free"] += back
        state["swap_blocks"] += back
        start_running(requests, replica, request, float(state["now"]))
        generated = int(requests[request]["target"] - requests[request]["input"]) + 1
        enter_decoding(requests, replica, settings, request, generated, float(requests[request]["emit"]))
        need = decode_need(requests, replica, settings, request)
        take_blocks(requests, replica, settings, request, back + need)
        requests[request]["held"] = back


def v0_pass(requests: Requests, replica: Replica, run: Run, limit_s: float) -> None:
    """The next pass: prompts, or a token for all who run and for those that come back from the host."""
    settings = run.settings
    state = replica.state[0]
    most = int(settings["max_seqs"])
    chunks, attention = plan_whole_prompts(requests, replica, run)
    if chunks > 0:
        end_pass(requests, replica, run, chunks, attention, False, most)
        return
    need = crossing_need(requests, replica, settings, 1)
    if need > state["free"] - settings["spare"]:
        pressed_pass(requests, replica, run, False)
        return
    comes_back = may_swap_in(requests, replica, settings, int(state["free"]) - need)
    if settings["skip"] and not comes_back and state["late"] == 0 and state["decoding"] > 0:
        open_to_arrivals = settings["feedback"] or (state["waiting"] == 0 and state["swapped"] == 0)
        if leap(requests, replica, run, limit_s if open_to_arrivals else NEVER) > 0:
            return
    give_crossing_blocks(requests, replica, settings, 1)
    swap_in(requests, replica, settings)
    end_pass(requests, replica, run, 0, 0.0, True, most)
