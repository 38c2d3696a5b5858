"""nano-vllm: prefill strictly first, whole prompts' blocks at once, only the first prompt of a pass is chunked.

Source: GeeeekExplorer/nano-vllm, engine/scheduler.py and block_manager.py. The number of running requests is not
bounded there, only those of one pass: the first `max_seqs` of the running list decode, later ones wait their turn
with their blocks held.
"""

from __future__ import annotations

from calc.simulation.kernels.blocks import ceil_div, claim_hits, count_hits, take_blocks
from calc.simulation.kernels.chunks import add_chunk
from calc.simulation.kernels.layout import NEVER, NONE, Replica, Requests, Run
from calc.simulation.kernels.leaving import preempt, unpark
from calc.simulation.kernels.passes import crossing_need, end_pass, give_crossing_blocks, leap
from calc.simulation.kernels.sequences import leave_waiting, start_running, wait_again, waiting_first


def open_prompt(requests: Requests, replica: Replica, run: Run, request: int) -> bool:
    """Give a waiting request all blocks of its prompt, if there are enough."""
    settings = run.settings
    size = int(settings["block_size"])
    hits, revived = count_hits(requests, replica, settings, request)
    new = ceil_div(int(requests[request]["target"]), size) - hits
    if new + revived > replica.state[0]["free"]:
        return False
    claim_hits(requests, replica, settings, request, hits)
    take_blocks(requests, replica, settings, request, new)
    requests[request]["computed"] = hits * size
    return True


def prompt_tokens(requests: Requests, replica: Replica, run: Run, request: int) -> int:
    """Prompt tokens that a waiting request would have to compute."""
    if replica.state[0]["partial"] == request:
        return int(requests[request]["target"] - requests[request]["computed"])
    hits, _ = count_hits(requests, replica, run.settings, request)
    return int(requests[request]["target"]) - hits * int(run.settings["block_size"])


def plan_prompts(requests: Requests, replica: Replica, run: Run) -> tuple[int, float]:
    """Take prompts from the waiting list; returns the number of chunks and their attention."""
    settings = run.settings
    state = replica.state[0]
    budget = int(settings["budget"])
    chunks = 0
    attention = 0.0
    while state["waiting"] > 0 and chunks < settings["max_seqs"] and budget > 0:
        request = waiting_first(replica, settings)
        tokens = prompt_tokens(requests, replica, run, request)
        if tokens > budget and chunks > 0:
            break
        if state["partial"] != request and not open_prompt(requests, replica, run, request):
            break
        if requests[request]["scheduled"] < 0:
            requests[request]["scheduled"] = state["now"]
        chunk = min(tokens, budget)
        state["partial"] = request if chunk < tokens else NONE
        if chunk == tokens:
            leave_waiting(requests, replica, settings, request)
            start_running(requests, replica, request, float(state["now"]))
        attention += add_chunk(requests, replica, chunks, request, chunk)
        chunks += 1
        budget -= chunk
    return chunks, attention


def nano_pass(requests: Requests, replica: Replica, run: Run, limit_s: float) -> None:
    """The next pass: prompts if any can start, else a token for the running requests."""
    settings = run.settings
    state = replica.state[0]
    most = int(settings["max_seqs"])
    chunks, attention = plan_prompts(requests, replica, run)
    if chunks > 0:
        end_pass(requests, replica, run, chunks, attention, False, most)
        return
    open_to_arrivals = settings["feedback"] or state["waiting"] == 0
    if settings["skip"] and leap(requests, replica, run, limit_s if open_to_arrivals else NEVER) > 0:
        unpark(requests, replica, run, most)
        return
    while crossing_need(requests, replica, settings, 1) > state["free"]:
        loser = int(state["run_tail"])
        preempt(requests, replica, settings, loser)
        wait_again(requests, replica, settings, loser)
    give_crossing_blocks(requests, replica, settings, 1)
    end_pass(requests, replica, run, 0, 0.0, True, most)
    unpark(requests, replica, run, most)
