"""How requests leave: with their last token, preempted, or from prefill to decoding."""

from __future__ import annotations

from calc.simulation.kernels.beams import plant_beams
from calc.simulation.kernels.blocks import context, give_back, list_blocks
from calc.simulation.kernels.clock import add_gap
from calc.simulation.kernels.heap import heap_push
from calc.simulation.kernels.layout import (
    DECODE,
    DONE,
    DUE_HEAP,
    NEVER,
    NONE,
    PARKED,
    PREFILL,
    Record,
    Replica,
    Requests,
    Run,
    inlined,
)
from calc.simulation.kernels.sequences import (
    drop_prefilling,
    enter_decoding,
    last_token_s,
    leave_decoding,
    leave_running,
)
from calc.simulation.kernels.transfer import hand_over


def finish(requests: Requests, replica: Replica, run: Run, request: int) -> None:
    """A running request, whose blocks and place in the decoding set were taken back, has its last token."""
    state = replica.state[0]
    settings = run.settings
    leave_running(requests, replica, request)
    requests[request]["state"] = DONE
    requests[request]["last"] = state["now"]
    state["blocked"] = 0
    state["finished"] += 1
    state["last_finished"] += 1
    run.world["done"] += 1
    successor = int(requests[request]["successor"])
    if settings["successors"] and successor != NONE:
        requests[successor]["arrival"] = state["now"] + requests[successor]["think"]
        heap_push(
            requests["arrival_heap"], run.world["heap"], successor, requests["arrival"], requests["position"]
        )
        run.world["heap"] += 1


def list_generated(requests: Requests, replica: Replica, settings: Record, request: int) -> None:
    """Make the full blocks of a decoding request hittable that are not yet, before it lets them go."""
    tokens = context(requests, replica.state[0], request)
    list_blocks(requests, replica, settings, request, tokens - 1 if settings["list_decoded"] else 0, tokens)


def finish_due(requests: Requests, replica: Replica, run: Run) -> None:
    """Finish every decoding request whose tick has come."""
    state = replica.state[0]
    while state["heap"] > 0 and requests[replica.lists[DUE_HEAP, 0]]["due"] == state["tick"]:
        request = int(replica.lists[DUE_HEAP, 0])
        list_generated(requests, replica, run.settings, request)
        give_back(requests, replica, run.settings, request)
        leave_decoding(requests, replica, run.settings, request)
        finish(requests, replica, run, request)


def preempt(requests: Requests, replica: Replica, settings: Record, request: int) -> None:
    """Take everything from a running request and queue it again; its tokens are kept and computed anew.

    Sets its target to prompt and tokens so far. The caller puts it into the waiting list.
    """
    state = replica.state[0]
    if requests[request]["state"] == DECODE:
        requests[request]["emit"] = last_token_s(requests, replica, request)
        generated = int(requests[request]["output"] - (requests[request]["due"] - state["tick"]))
        if settings["list_decoded"]:
            list_generated(requests, replica, settings, request)
        give_back(requests, replica, settings, request)
        leave_decoding(requests, replica, settings, request)
        requests[request]["target"] = requests[request]["input"] + generated
    else:
        if requests[request]["state"] == PREFILL:
            drop_prefilling(replica, request)
        else:
            state["parked"] -= 1
            requests[request]["target"] = requests[request]["input"] + requests[request]["due"]
        give_back(requests, replica, settings, request)
    requests[request]["computed"] = 0
    leave_running(requests, replica, request)
    requests[request]["preemptions"] += 1
    state["preemptions"] += 1


def complete_prefill(
    requests: Requests, replica: Replica, run: Run, request: int, most_decoding: int
) -> None:
    """The last prompt token was computed: the next token comes out now, and decoding begins or is over."""
    state = replica.state[0]
    now = float(state["now"])
    generated = int(requests[request]["target"] - requests[request]["input"]) + 1
    if requests[request]["first"] < 0:
        requests[request]["first"] = now
    else:
        add_gap(replica, now - float(requests[request]["emit"]), 1)
    if generated >= requests[request]["output"]:
        give_back(requests, replica, run.settings, request)
        finish(requests, replica, run, request)
    elif run.settings["hands_over"]:
        hand_over(requests, replica, request)
    elif state["decoding"] >= most_decoding:
        requests[request]["state"] = PARKED
        requests[request]["emit"] = now
        requests[request]["due"] = generated
        state["parked"] += 1
    else:
        if run.settings["beams"]:
            plant_beams(requests, replica, run.settings, request)
        enter_decoding(requests, replica, run.settings, request, generated, now)


def unpark(requests: Requests, replica: Replica, run: Run, most_decoding: int) -> None:
    """Let parked requests decode as places become free, in running order."""
    state = replica.state[0]
    while state["parked"] > 0 and state["decoding"] < most_decoding:
        request = int(state["run_head"])
        while requests[request]["state"] != PARKED:
            request = int(requests[request]["next"])
        state["parked"] -= 1
        generated = int(requests[request]["due"])
        enter_decoding(requests, replica, run.settings, request, generated, float(requests[request]["emit"]))


@inlined
def next_wake(replica: Replica) -> None:
    """Set when the replica can begin its next pass: at once if it has anything to do."""
    state = replica.state[0]
    state["wake"] = (
        state["now"] if state["running"] + state["waiting"] + state["ready"] + state["swapped"] > 0 else NEVER
    )
