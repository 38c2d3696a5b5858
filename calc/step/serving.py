"""A serving point at fixed concurrency: decode steps, the prompts between them, and how long a request decodes.

Each of the other B-1 slots inserts one prompt per request cycle, so a request that decodes for D seconds sees the share
D/(D + TTFT) of B-1 prompts, each costing the decoders `extra` seconds:

    D = o T_dec + share (B - 1) D/(D + TTFT) extra,      n = B D/(D + TTFT) sequences decode at a time,     TPOT = D/o

That has at most one prompt to a step. Where answers are shorter than the users are many (B > o) several share one, and a
first token also waits its turn: from B = 2 o on TTFT + (o - 1) TPOT is no less than the work of B requests in full steps,
and between o and 2 o as much of that as B/o - 1 says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

ROUNDS = 4  # the fixed point contracts fast; three rounds are within 0.1%


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaved:
    """Decode time of a request, sequences that decode at a time, and the share of the cycle spent on prompts.

    The rest is what they were made of: users of one rank, its decode step, what one prompt adds, the share of its life that
    a request decodes as the last round had it, the share of prompts seen, how the first token comes about, and `turn_s`:
    how much longer a prompt waits for its turn than that says, where answers are so short that prompts fill the steps.
    """

    decode_s: Any
    decoding: Any
    tpot_s: Any
    ttft_s: Any
    prefill_s: Any
    prefill_share: Any
    users: Any
    decode_step_s: Any
    extra_s: Any
    decoding_share: Any
    prefill_seen: Any
    first_token: FirstToken
    turn_s: Any = 0.0

    def waiting(self, least_s: Any, share: Any) -> Interleaved:
        """The same with a first token that comes no sooner than `least_s`, as far as `share` says: work that is not done serves nobody."""
        turn = share * np.maximum(np.asarray(least_s, dtype=float) - self.ttft_s, 0.0)
        ttft = self.ttft_s + turn
        decoding = np.maximum(self.users * self.decode_s / (self.decode_s + ttft), 1.0)
        return replace(self, ttft_s=ttft, turn_s=turn, decoding=decoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """How an engine's first token comes about: server overhead, decode steps waited, times the prefill itself."""

    server_s: Any
    steps: Any
    prefill: Any

    def seconds(self, *, tpot_s: Any, prefill_s: Any, prefill_share: Any) -> Any:
        """TTFT; the prompt waits for the residual work of other prompts, as in a queue that is busy `prefill_share`."""
        busy = np.minimum(prefill_share, MOST_BUSY)
        waiting = 1.0 + busy / (2.0 * (1.0 - busy))
        return self.server_s + self.steps * tpot_s + self.prefill * prefill_s * waiting


MOST_BUSY = 0.95  # beyond, a closed population saturates and the residual-work formula of an open queue no longer holds


def interleave(
    *,
    concurrency: Any,
    output_tokens: Any,
    decode_step_s: Any,
    prefill_s: Any,
    extra_s: Any,
    share: Any,
    first_token: FirstToken,
) -> Interleaved:
    """Solve the fixed point. `prefill_s`: one prompt from start to end; `extra_s`: what it costs the decoders."""
    others = np.maximum(np.asarray(concurrency, dtype=float) - 1.0, 0.0)
    decode = np.asarray(output_tokens * decode_step_s, dtype=float)
    ttft = np.asarray(prefill_s, dtype=float)
    busy: Any = 0.0
    overlap: Any = 1.0
    for _ in range(ROUNDS):
        overlap = decode / (decode + ttft)
        stall = share * others * overlap * extra_s
        decode = output_tokens * decode_step_s + stall
        busy = stall / decode
        ttft = first_token.seconds(tpot_s=decode / output_tokens, prefill_s=prefill_s, prefill_share=busy)
    at_last = overlap
    overlap = decode / (decode + ttft)
    return Interleaved(
        decode_s=decode,
        decoding=np.maximum(concurrency * overlap, 1.0),
        tpot_s=decode / output_tokens,
        ttft_s=ttft,
        prefill_s=prefill_s,
        prefill_share=busy,
        users=concurrency,
        decode_step_s=decode_step_s,
        extra_s=extra_s,
        decoding_share=at_last,
        prefill_seen=share,
        first_token=first_token,
    )
