"""How fast many candidates can go at best: lower bounds on TTFT and TPOT, and an upper one on requests per second.

One group (a layout and the formats of weights and cache) on all accelerators at every number of decoding sequences at
once, from the same operators, rates and links as the step model. Operators of one kind and format are summed before
the soft maximum is taken: a norm of sums is at most the sum of norms (Minkowski), so that the step time here is at most
the step model's. What a prompt adds to decode steps is taken at its least: convexity of the soft maximum makes the extra of
a prompt smallest beside no decoding and largest memory time. Hence nothing that the step model would choose is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc.operators import KINDS, ForwardPass, Kind, Operators, OperatorTable
from calc.plan.stacked import FIRST_LINK, Stacked
from calc.step.rates import kv_head_share
from calc.step.seconds import BATCHED_SEQUENCES, soft_maximum

Array = NDArray[np.float64]

ATTENTION = KINDS.index(Kind.ATTENTION)
PREFILL_ATTENTION = KINDS.index(Kind.PREFILL_ATTENTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Bounds of one group, arrays of (decoding sequences, accelerators).

    TPOT, TTFT and end to end from below, requests per second of a replica from above. `sequences`: of the replica, at
    each point.
    """

    sequences: Array
    tpot_s: Array
    ttft_s: Array
    e2e_s: Array
    requests_per_s: Array


def pace_of(
    operators: Operators,
    stacked: Stacked,
    *,
    sequences: Array,
    input_tokens: float,
    output_tokens: float,
    prefix_tokens: float,
    schedulers: int,
    nodes: int,
    gpus: int,
    drafts: int = 0,
    tokens_per_pass: float = 1.0,
) -> Pace:
    """Bounds at `sequences` decoding sequences of each of `schedulers` (attention ranks x pipeline stages)."""
    work = _Work(operators=operators, stacked=stacked, nodes=nodes, gpus=gpus)
    context = input_tokens + output_tokens / 2.0
    decode_s = work.decode(sequences, context, drafts=drafts) / tokens_per_pass
    prompt_s, extra_s = work.prompt(input_tokens, prefix_tokens)
    others = np.maximum(sequences - 1.0, 0.0)[:, None]
    decoding_s = output_tokens * decode_s + stacked.share * others * extra_s
    server_s, steps, prefill = stacked.first_token
    tpot_s = decoding_s / output_tokens
    ttft_s = server_s + steps * tpot_s + prefill * prompt_s
    e2e_s = ttft_s + tpot_s * max(output_tokens - 1.0, 0.0)
    # A replica of B users finishes B/(TTFT + (o-1) TPOT) requests per second, of which n = B D/(D + TTFT) decode at a time.
    most = sequences[:, None] * schedulers / decoding_s * (output_tokens / max(output_tokens - 1.0, 0.5))
    return Pace(
        sequences=sequences * schedulers, tpot_s=tpot_s, ttft_s=ttft_s, e2e_s=e2e_s, requests_per_s=most
    )


@dataclass(frozen=True)
class _Work:
    """One group's operators on the stacked accelerators."""

    operators: Operators
    stacked: Stacked
    nodes: int
    gpus: int

    def decode(self, sequences: Array, context: float, *, drafts: int) -> Array:
        """Seconds of a decode step that verifies so many drafts, (sequences, accelerators)."""
        step = ForwardPass.verify(sequences, context, drafts=drafts)
        table = self._table(step)
        rates = self.stacked.rates
        soft = _soft(table, self.stacked, step)
        handled = BATCHED_SEQUENCES * -np.expm1(-sequences / BATCHED_SEQUENCES)
        attends = (self.operators.kind_index[:, 0] == ATTENTION) & (table.units > 0).any(axis=1)
        heads = kv_head_share(self.operators.numbers["kv_heads"][attends, 0])
        per_sequence = (table.count[attends, 0] * heads).sum() * rates.sequence_s[:, ATTENTION, 0]
        engine = rates.fixed_s @ self.operators.feature_counts[:, 0] + rates.step_s
        seconds = (
            soft
            + self._links(table)
            + engine
            + handled[:, None] * rates.step_sequence_s
            + sequences[:, None] * per_sequence
        )
        return np.asarray(seconds * self.stacked.scalar("decode_factor"))

    def prompt(self, input_tokens: float, prefix_tokens: float) -> tuple[Array, Array]:
        """(seconds of one prompt alone, least seconds that it adds to the steps of others), (accelerators,)."""
        stacked, rates = self.stacked, self.stacked.rates
        new = max(input_tokens - prefix_tokens, 1.0)
        chunk = min(new, stacked.chunk_tokens)
        chunks = max(new / stacked.chunk_tokens, 1.0)
        step = ForwardPass.prefill(chunk, prefix=prefix_tokens + (new - chunk) / 2.0)
        table = self._table(step)
        eager = self.operators.features["layers"][0] * rates.eager_layer_s
        engine = rates.fixed_s @ self.operators.feature_counts[:, 0] + rates.step_s + eager
        alone = (_soft(table, stacked, step) + self._links(table))[0] + engine
        extra = alone
        if stacked.mixes:
            added = _soft(table, stacked, step, beside_decoding=True)[0]
            extra = added + eager
        factor = stacked.scalar("prefill_factor")
        if np.any(factor != stacked.scalar("decode_factor")):  # a difference of two factors can be anything
            extra = extra if not stacked.mixes else np.zeros_like(extra)
            factor = stacked.scalar("prefill_factor")
        return alone * chunks * factor, extra * chunks * factor

    def _table(self, step: ForwardPass) -> OperatorTable:
        routing = float(self.stacked.number("experts.routing").min())
        return self.operators.evaluate(step, routing_factor=routing)

    def _links(self, table: OperatorTable) -> Array:
        """Seconds of all collectives, (candidates, accelerators)."""
        total: Any = np.zeros((table.units.shape[1], len(self.stacked.offers)))
        for row in self.operators.sets.links:
            kind = KINDS[self.operators.kind_index[row, 0]]
            ranks = int(self.operators.numbers["ranks"][row, 0])
            terms = self.stacked.links(kind, ranks, nodes=self.nodes, gpus=self.gpus)
            total += table.count[row, 0] * terms.seconds(np.asarray(table.message_bytes[row]))
        return np.asarray(total)


def _soft(
    table: OperatorTable, stacked: Stacked, step: ForwardPass, *, beside_decoding: bool = False
) -> Array:
    """Soft maxima of memory and compute by kind and format, activations and kernels, (candidates, accelerators).

    `beside_decoding`: only what a prompt adds to a step that reads the weights anyway.
    """
    rates, operators = stacked.rates, table.operators
    exponent = rates.exponent
    kinds, forms = operators.kind_index[:, 0], operators.format_index[:, 0]
    count = np.where(kinds[:, None] < FIRST_LINK, table.count, 0.0)  # collectives have seconds of their own
    moved = count * (table.weight_bytes + table.kv_bytes + table.streamed_bytes)
    active = count * table.passed_bytes
    flop = count * table.flop
    if np.isinf(exponent):
        moved = count * table.bytes
    total: Any = np.zeros((table.units.shape[1], len(stacked.offers)))
    if not beside_decoding:
        total = total + (count * table.kernels).sum(axis=0)[:, None] * rates.kernel_s
    prompt = float(np.max(np.asarray(step.prefill_tokens)))
    for kind, form in sorted(set(zip(kinds.tolist(), forms.tolist(), strict=True))):
        if kind >= FIRST_LINK:
            continue
        rows = (kinds == kind) & (forms == form)
        memory_bytes, compute_flop = moved[rows].sum(axis=0), flop[rows].sum(axis=0)
        at = stacked.formats.index(operators.formats[form])
        total = total + active[rows].sum(axis=0)[:, None] / rates.activation_bytes_per_s[:, kind, at]
        if not memory_bytes.any() and not compute_flop.any():
            continue
        slowed = 1.0 + rates.half_tokens[:, kind, at] / max(prompt, 1.0) if prompt else 1.0
        compute_s = compute_flop[:, None] * slowed / rates.flop_per_s[:, kind, at]
        memory_s = memory_bytes[:, None] / rates.bytes_per_s[:, kind, at]
        if beside_decoding and kind != PREFILL_ATTENTION:
            whole = (operators.numbers["count"] * operators.numbers["weight_bytes"])[rows].sum()
            total = total + _added(memory_s, compute_s, whole / rates.bytes_per_s[:, kind, at], exponent)
            continue
        total = total + soft_maximum(memory_s, compute_s, exponent)
    return np.asarray(total)


def _added(memory_s: Array, compute_s: Array, weights_s: Array, exponent: float) -> Array:
    """The least seconds that a prompt adds to rows that decoding sequences share: none, memory, or what exceeds the weights.

    Rows without FLOP add their bytes. Where weights are read anyway, the prompt's FLOP show only beyond them.
    """
    if not compute_s.any():
        return memory_s
    if np.isinf(exponent) or not weights_s.any():
        return np.zeros_like(compute_s)
    return np.asarray(soft_maximum(weights_s + np.zeros_like(compute_s), compute_s, exponent) - weights_s)
