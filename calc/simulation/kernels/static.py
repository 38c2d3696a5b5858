"""Static batching: wait for a full batch or a time-out, pad to the longest, and finish together.

Every slot computes until the longest answer is done; what a slot computes after its own answer is waste, counted in
`slot_steps` against `useful_slots`. A batch runs as one piece: its requests end when it ends, and a stream that is
read along sees the first token after the prefill.
"""

from __future__ import annotations

from calc.simulation.kernels.blocks import ceil_div
from calc.simulation.kernels.clock import add_growing_gaps, leap_seconds, record_pass, step_seconds
from calc.simulation.kernels.layout import CHUNK_REQUEST, CHUNK_TOKENS, NEVER, Record, Replica, Requests, Run
from calc.simulation.kernels.leaving import finish
from calc.simulation.kernels.sequences import leave_waiting, start_running, waiting_first


def static_wake(requests: Requests, replica: Replica, settings: Record, flush: bool) -> None:
    """Set when the next batch begins: as soon as it is full, or the first has waited long enough, or none will come."""
    state = replica.state[0]
    if state["waiting"] == 0:
        state["wake"] = NEVER
    elif flush or state["waiting"] >= settings["batch_size"]:
        state["wake"] = state["now"]
    else:
        first = waiting_first(replica, settings)
        patience_s = float(requests[first]["arrival"]) + float(settings["batch_timeout_s"])
        state["wake"] = max(float(state["now"]), min(patience_s, NEVER))


def form_batch(requests: Requests, replica: Replica, settings: Record) -> tuple[int, int, int]:
    """Take waiting requests while their padded blocks fit: (slots, padded prompt, longest answer)."""
    state = replica.state[0]
    size = int(settings["block_size"])
    slots = prompt = answer = 0
    while state["waiting"] > 0 and slots < settings["batch_size"]:
        request = waiting_first(replica, settings)
        longer = max(prompt, int(requests[request]["input"]))
        more = max(answer, int(requests[request]["output"]))
        if (slots + 1) * ceil_div(longer + more - 1, size) > settings["num_blocks"]:
            break
        prompt, answer = longer, more
        leave_waiting(requests, replica, settings, request)
        start_running(requests, replica, request, float(state["now"]))
        replica.lists[CHUNK_REQUEST, slots] = request
        slots += 1
    return slots, prompt, answer


def decode_together(
    requests: Requests, replica: Replica, run: Run, slots: int, attended: int, begin: int, steps: int
) -> None:
    """Run `steps` decode passes of equal growth, the first of them the batch's decode pass number `begin`."""
    settings = run.settings
    state = replica.state[0]
    window = int(settings["window"])
    below = slots if window and attended < window else 0
    read_window = slots * min(attended, window)
    first_s = step_seconds(run.table, 0, 0.0, slots, slots * attended, read_window)
    growth_s = float(slots * run.table["kv_s"] + below * run.table["window_s"])
    start_s = float(state["now"])
    state["now"] = start_s + leap_seconds(first_s, growth_s, steps)
    record_pass(replica, start_s, steps, 0, slots, float(settings["num_blocks"] - state["free"]), slots)
    for i in range(slots):
        request = int(replica.lists[CHUNK_REQUEST, i])
        # A request whose answer is done pads the batch: of these passes it gives only what its answer still lacks.
        given = max(0, min(steps, int(requests[request]["output"]) - 1 - begin))
        add_growing_gaps(replica, first_s, growth_s, given, 1)
        if given > 0:
            requests[request]["emit"] = start_s + leap_seconds(first_s, growth_s, given)


def static_pass(requests: Requests, replica: Replica, run: Run, limit_s: float) -> None:  # noqa: ARG001 - as all passes
    """Run one whole batch, whatever arrives meanwhile."""
    settings = run.settings
    state = replica.state[0]
    state["now"] = max(float(state["now"]), float(state["wake"]))
    slots, prompt, answer = form_batch(requests, replica, settings)
    state["free"] -= slots * ceil_div(prompt + answer - 1, int(settings["block_size"]))
    state["peak_blocks"] = max(state["peak_blocks"], settings["num_blocks"] - state["free"])
    start_s = float(state["now"])
    state["last_finished"] = 0
    state["now"] = start_s + step_seconds(run.table, slots * prompt, slots * prompt * (0.5 * prompt), 0, 0, 0)
    used = float(settings["num_blocks"] - state["free"])
    record_pass(replica, start_s, 1, slots * prompt, 0, used, slots)
    for i in range(slots):
        request = int(replica.lists[CHUNK_REQUEST, i])
        requests[request]["first"] = state["now"]
        requests[request]["emit"] = state["now"]
        replica.lists[CHUNK_TOKENS, i] = prompt
        state["useful_slots"] += int(requests[request]["output"])
    state["slot_steps"] += slots * answer
    done = 0
    while done < answer - 1:
        steps = answer - 1 - done
        attended = prompt + 1 + done
        if settings["skip"] == 0:
            steps = 1
        elif attended < settings["window"]:
            steps = min(steps, int(settings["window"]) - attended)
        decode_together(requests, replica, run, slots, attended, done, steps)
        done += steps
    for i in range(slots):
        finish(requests, replica, run, int(replica.lists[CHUNK_REQUEST, i]))
    state["free"] = settings["num_blocks"]
    static_wake(requests, replica, settings, False)
