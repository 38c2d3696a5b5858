"""Groups of samples that write in step from one prompt: how many blocks they hold together."""

from __future__ import annotations

from calc.simulation.kernels.layout import Record, Requests, inlined


@inlined
def group_blocks(requests: Requests, settings: Record, request: int, tokens: int) -> int:
    """Blocks of a group whose samples have `tokens` tokens each: full blocks of the prompt once, all others for each."""
    size = int(settings["block_size"])
    shared = int(requests[request]["input"]) // size
    return shared + int(requests[request]["width"]) * (-(-tokens // size) - shared)


@inlined
def copies(requests: Requests, settings: Record, request: int) -> int:
    """Copies of the prompt's last block that the samples of a group need: none if it is full or there is one sample."""
    width = int(requests[request]["width"])
    partial = int(requests[request]["input"]) % int(settings["block_size"]) != 0
    return width - 1 if partial else 0
