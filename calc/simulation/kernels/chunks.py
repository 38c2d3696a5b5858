"""The prompt part of a pass: how many tokens a request may compute, and the list of chunks."""

from __future__ import annotations

from calc.simulation.kernels.layout import CHUNK_REQUEST, CHUNK_TOKENS, Record, Replica, Requests, inlined


@inlined
def first_chunk(requests: Requests, settings: Record, request: int, computed: int, budget: int) -> int:
    """Prompt tokens that a request may compute in this pass."""
    tokens = int(requests[request]["target"]) - computed
    if settings["threshold"]:
        tokens = min(tokens, int(settings["threshold"]))
    return min(tokens, budget)


@inlined
def add_chunk(requests: Requests, replica: Replica, chunks: int, request: int, tokens: int) -> float:
    """Put `tokens` prompt tokens of a request into the pass; returns their attention, tokens x (prefix + half)."""
    replica.lists[CHUNK_REQUEST, chunks] = request
    replica.lists[CHUNK_TOKENS, chunks] = tokens
    return tokens * (float(requests[request]["computed"]) + 0.5 * tokens)
