"""Seconds of a forward pass: each operator's soft maximum of bytes and FLOP, its kernels, the links, the engine's overhead.

    t = kernels t0 + activations/(e_a BW) + [ (bytes/(e BW))^p + (FLOP/(u F))^p ]^(1/p)

What a matrix product streams of its own inputs and outputs is among its bytes, beside its arithmetic; other activations have passes
of their own. Source of the form: measured GEMM times bend softly at the ridge (up to a third slower there than the hard maximum);
exponents from 2 to 6 fit alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc.operators import KINDS, ForwardPass, Kind, Operators, OperatorTable, Reads
from calc.step.rates import Rates

Array = NDArray[np.float64]

TERMS = ("weights", "kv", "activations", "compute", "communication", "overhead")
# Host work per sequence stops growing as it is done for many at a time and behind the GPU's work: measured steps of 512 and
# 1,024 sequences take 10 to 30% less than a constant cost per sequence, fitted below 256, would have them take.
BATCHED_SEQUENCES = 512.0
# (operator table, indices of the collectives) -> seconds of one call each, shape (collectives, candidates)
LinkSeconds = Callable[[OperatorTable, NDArray[np.intp]], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeconds:
    """Seconds of one forward pass: `operators` (operators, candidates) with all repetitions, and the engine's `fixed`."""

    operators: Array
    fixed: Array
    table: OperatorTable
    memory_s: Array
    activation_s: Array
    compute_s: Array
    floor_s: Array

    @property
    def total(self) -> Array:
        return np.asarray(self.operators.sum(axis=0) + self.fixed)

    def terms(self) -> dict[str, Array]:
        """The total by cause; the soft maximum is shared out by what each side weighs in it."""
        table, count = self.table, self.table.count
        soft = np.maximum(self.operators - count * (self.floor_s + self.activation_s), 0.0)
        is_link = link_rows(table.operators)
        with np.errstate(divide="ignore", invalid="ignore"):
            memory, compute = self.memory_s**2, self.compute_s**2
            memory_share = np.nan_to_num(memory / (memory + compute))
            streamed = table.streamed_bytes
            moved = table.weight_bytes + table.kv_bytes + streamed
            weight_share = np.nan_to_num(table.weight_bytes / moved)
            streamed_share = np.nan_to_num(streamed / moved)
        waited = soft * memory_share  # for memory
        waited[is_link] = 0.0
        own = np.ones(soft.shape)
        own[is_link] = 0.0
        return {
            "weights": (waited * weight_share).sum(axis=0),
            "kv": (waited * (1 - weight_share - streamed_share)).sum(axis=0),
            "activations": (count * self.activation_s + waited * streamed_share).sum(axis=0),
            "compute": (soft * own * (1 - memory_share)).sum(axis=0),
            "communication": self.operators[is_link].sum(axis=0),
            "overhead": (count * self.floor_s * own).sum(axis=0) + self.fixed,
        }


def link_rows(operators: Operators) -> NDArray[np.intp]:
    """Indices of rows that move data between GPUs (in any candidate)."""
    return operators.sets.links


def pass_seconds(
    table: OperatorTable, rates: Rates, step: ForwardPass, links: LinkSeconds, *, eager: Any
) -> PassSeconds:
    """Seconds of every operator and of the engine around them. `eager`: no graph captures this step (per candidate, or one)."""
    count = table.count
    # The roofline: an operator's bytes all compete with its FLOP.
    beside = table.activation_bytes if np.isinf(rates.exponent) else table.streamed_bytes
    moved = table.weight_bytes + table.kv_bytes + beside
    memory = moved / rates.bytes_per_s
    compute = table.flop / rates.flop_per_s
    rows = rates.short_prompt_rows
    if rows.size:
        prompt = np.divide(step.prefill_tokens, np.asarray(step.prefill_sequences, dtype=float))
        compute[rows] *= 1.0 + rates.half_tokens[rows] / np.maximum(prompt, 1.0)
    if np.any(table.operators.features["indexer"]):
        compute = compute * _indexed_prompts(table.operators, rates)
    activation = table.passed_bytes / rates.activation_bytes_per_s
    floor = table.kernels * rates.kernel_s
    rows = rates.sequence_rows
    if rows.size:
        decoding = np.where(table.units[rows] > 0, np.asarray(step.decode_sequences, dtype=float), 0.0)
        floor[rows] += rates.sequence_s[rows] * decoding
    seconds = count * (floor + activation + soft_maximum(memory, compute, rates.exponent))
    rows = link_rows(table.operators)
    if rows.size:
        seconds[rows] = np.where(
            table.operators.kind_index[rows] >= KINDS.index(Kind.ALL_REDUCE),
            np.broadcast_to(count, seconds.shape)[rows] * links(table, rows),
            seconds[rows],
        )
    return PassSeconds(
        operators=seconds,
        fixed=_fixed_seconds(table.operators, rates, step, eager=eager),
        table=table,
        memory_s=memory,
        activation_s=activation,
        compute_s=compute,
        floor_s=floor,
    )


def _indexed_prompts(operators: Operators, rates: Rates) -> Array:
    """How much slower prompts attend where an indexer selects the keys."""
    prompt = operators.reads == int(Reads.PROMPT)
    return np.where(prompt & (operators.features["indexer"] > 0), rates.indexed_prompts, 1.0)


def soft_maximum(first: Array, second: Array, exponent: float) -> Array:
    """(a^p + b^p)^(1/p); the hard maximum for an infinite exponent."""
    if np.isinf(exponent):
        return np.maximum(first, second)
    if exponent == 3.0:  # times lie within 1e-12 to 1e6 s: their cubes neither vanish nor overflow
        return np.asarray(np.cbrt(first * first * first + second * second * second))
    larger = np.maximum(first, second)
    ratio = np.divide(np.minimum(first, second), larger, out=np.zeros_like(larger), where=larger > 0)
    return np.asarray(larger * (1.0 + ratio**exponent) ** (1.0 / exponent))


def _fixed_seconds(operators: Operators, rates: Rates, step: ForwardPass, *, eager: Any) -> Array:
    """What the engine costs beside the kernels: per layer by what it has, and its host's work."""
    per_layer = (operators.feature_counts * rates.fixed_s).sum(axis=0)
    fixed = per_layer + host_seconds(operators, rates, step, eager=eager)
    return np.asarray(np.where(np.asarray(step.tokens) + step.encoder_tokens > 0, fixed, 0.0))


def host_seconds(operators: Operators, rates: Rates, step: ForwardPass, *, eager: Any) -> Array:
    """What the host does for a step: per step, per sequence, and the launches of a step that no graph captures."""
    handled = BATCHED_SEQUENCES * -np.expm1(-np.asarray(step.sequences) / BATCHED_SEQUENCES)
    spent = rates.step_s + rates.step_sequence_s * handled
    if np.any(eager):
        spent = spent + np.where(eager, operators.features["layers"] * rates.eager_layer_s, 0.0)
    return np.asarray(spent)
