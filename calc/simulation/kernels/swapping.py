"""Preemption by swap: blocks of a running request go to host memory, and it waits there, ahead of all new prompts."""

from __future__ import annotations

from calc.simulation.kernels.blocks import context, holding
from calc.simulation.kernels.layout import NONE, SWAPPED, Record, Replica, Requests, inlined
from calc.simulation.kernels.sequences import last_token_s, leave_decoding, leave_running


@inlined
def swap_seconds(replica: Replica, settings: Record) -> float:
    """Seconds of the copies that the pass makes, out and in; they are counted once."""
    state = replica.state[0]
    seconds = int(state["swap_blocks"]) * float(settings["swap_block_s"])
    state["swap_blocks"] = 0
    return seconds


def swap_out(requests: Requests, replica: Replica, settings: Record, request: int) -> bool:
    """Move a decoding request to the host, first in line to come back; False if the host has no room.

    What it holds there stays in `held`, and the tree of its beams as it is.
    """
    state = replica.state[0]
    blocks = holding(requests, replica, settings, request)
    if blocks > state["host_free"]:
        return False
    state["host_free"] -= blocks
    state["swap_blocks"] += blocks
    state["swap_outs"] += 1
    requests[request]["emit"] = last_token_s(requests, replica, request)
    tokens = context(requests, state, request)
    state["free"] += blocks
    leave_decoding(requests, replica, settings, request)
    leave_running(requests, replica, request)
    requests[request]["held"] = blocks
    requests[request]["target"] = tokens
    requests[request]["computed"] = tokens
    requests[request]["state"] = SWAPPED
    requests[request]["next"] = state["swap_head"] if state["swapped"] > 0 else NONE
    state["swap_head"] = request
    state["swapped"] += 1
    requests[request]["preemptions"] += 1
    state["preemptions"] += 1
    return True
