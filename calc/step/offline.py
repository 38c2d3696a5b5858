"""Output tokens per second of offline work: a list of equal requests, slots that refill at once, nobody waiting for a token.

A scheduler (an attention rank, or a micro-batch of a pipeline) holds b sequences. Prompts enter where the token budget B of
a step leaves room, so that b requests of p prompt tokens bring N = b p/(B - b) mixed steps, and each makes o tokens:

    cycle = (o - N) T(b) + N T(b, B - b)

A run of R = k b + r requests has k cycles, the first of them filling up, and then r prompts and o steps of those that are left.
Where prompts are done within a small part f = N/o of a cycle, requests end together, wave by wave, and the last wave is a small
one; where they are spread over all of it, requests end one by one:

    left = r (1 - f r/(2 b)) + f (b - r)^2/(2 b)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc.operators import Driver, ForwardPass
from calc.profile import Schedule
from calc.provenance import Estimate
from calc.step.estimate import Fidelity, StepModel
from calc.step.seconds import host_seconds

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineWork:
    """Requests that are all there at the start. `requests` infinite: the steady state, without filling and draining.

    `token_budget`: most tokens of a step and scheduler; None for the engine profile's chunk. `graph_sizes`: sequences that
    the engine captured graphs of, ascending; a decode step is padded to the next of them. None: it computes what it holds.
    """

    input_tokens: float
    output_tokens: float
    requests: float = np.inf
    token_budget: Any = None
    graph_sizes: tuple[int, ...] | None = None

    def padded(self, sequences: Array) -> Array:
        """Sequences that a decode step computes; above the largest graph as many as it holds."""
        if not self.graph_sizes:
            return sequences
        sizes = np.array(self.graph_sizes, dtype=float)
        index = np.searchsorted(sizes, sequences - 1e-9)
        padded = sizes[np.minimum(index, len(sizes) - 1)]
        return np.asarray(np.maximum(padded, sequences))


def offline_tokens_per_s(model: StepModel, work: OfflineWork, *, slots: Any) -> Estimate:
    """Output tokens/s of a replica that holds `slots` sequences (an array, or one number) as long as there are requests.

    Source: the arithmetic above. Ignores: lengths that differ, and what a cache of common prefixes saves.
    """
    layout = model.layout
    schedulers = layout.schedulers
    requests = work.requests / schedulers
    held = np.minimum(np.atleast_1d(np.asarray(slots, dtype=float)) / schedulers, requests)
    alone = model.profile.engine.schedule is not Schedule.MIXED
    budget = np.asarray(
        model.profile.engine.chunk_tokens if work.token_budget is None else work.token_budget, dtype=float
    )
    room = np.broadcast_to(budget, held.shape) if alone else np.maximum(budget - held, 1.0)
    room = np.minimum(room, held * work.input_tokens)
    prompt_steps = held * work.input_tokens / room
    if alone:
        decoding, mixed_steps, decode_steps = held, prompt_steps, np.full(held.shape, work.output_tokens)
    else:
        cycle_steps = np.maximum(work.output_tokens, prompt_steps)
        decoding = held * work.output_tokens / cycle_steps  # the others wait for their prompt's turn
        mixed_steps, decode_steps = prompt_steps, cycle_steps - prompt_steps
    spread = np.minimum(prompt_steps / work.output_tokens, 1.0)
    waves = np.ceil(requests / held - 1e-9) - 1.0 if np.isfinite(requests) else np.zeros(held.shape)
    rest = np.clip(requests - waves * held, 0.0, held)
    left = rest * (1.0 - spread * rest / (2.0 * held)) + spread * (held - rest) ** 2 / (2.0 * held)
    decode_s, left_s, mixed_s, filling_s = _passes(
        model, work, decoding=decoding, left=left, room=room, alone=alone
    )
    cycle_s = decode_steps * decode_s + mixed_steps * mixed_s
    best = held * work.output_tokens / cycle_s
    if np.isfinite(requests):
        filled = waves * cycle_s - np.where(waves > 0, prompt_steps * (mixed_s - filling_s), 0.0)
        last = rest / held * prompt_steps * np.where(waves > 0, mixed_s, filling_s)
        best = requests * work.output_tokens / (filled + last + work.output_tokens * left_s)
    best = best * schedulers
    factor = 1.0 if model.fidelity is Fidelity.ROOFLINE else model.factor
    return Estimate(low=best / factor, best=best, high=best * factor, provenance=model.profile.provenance)


def _passes(
    model: StepModel, work: OfflineWork, *, decoding: Array, left: Array, room: Array, alone: bool
) -> tuple[Array, Array, Array, Array]:
    """Seconds of a decode step, one of those left at the end, a mixed step, and one while the slots fill up."""
    context = work.input_tokens + work.output_tokens / 2.0
    prefix = np.maximum(work.input_tokens - room, 0.0) / 2.0
    prompts = np.maximum(room / work.input_tokens, 1.0)
    none, riders = np.zeros(room.shape), np.zeros(room.shape) if alone else decoding
    held = np.concatenate([decoding, left, riders, riders / 2.0])
    captured = np.concatenate([work.padded(decoding), work.padded(left), riders, riders / 2.0])
    step = ForwardPass(
        decode_sequences=captured,
        decode_context=context * np.divide(held, captured, out=np.ones(held.shape), where=captured > 0),
        prefill_tokens=np.concatenate([none, none, room, room]),
        prefill_sequences=np.concatenate([prompts] * 4),
        prefix_tokens=np.concatenate([none, none, prefix, prefix]),
    )
    first, second, third, fourth = np.split(overlapped_seconds(model, step), 4)
    return first, second, third, fourth


def overlapped_seconds(model: StepModel, step: ForwardPass) -> Array:
    """Seconds of a step whose host works ahead of the GPU: the longer of the two, by pipeline stages one after the other.

    In a pipeline all micro-batches are under way, so that the slowest stage sets the pace: the last one, with the output head;
    and a stage's host handles each micro-batch between two of its launches, so that its time is added.
    Ignores: layers that do not divide evenly.
    """
    stages = model.layout.pp
    if model.fidelity is Fidelity.ROOFLINE:
        seconds = model.roofline(step)
        return seconds.total + (stages - 1.0) * _head_seconds(seconds)
    rates = model.reached_rates
    unhosted = replace(
        model, reached_rates=replace(rates, step_s=0.0, step_sequence_s=0.0, eager_layer_s=0.0)
    )
    seconds = unhosted.expected(step, eager=False)
    eager = np.asarray(step.prefill_tokens) > 0
    host = host_seconds(model.operators, rates, step, eager=eager)
    if stages == 1:
        return np.maximum(seconds.total, host)
    launches = np.where(eager, model.operators.features["layers"] * rates.eager_layer_s, 0.0)
    own = stages * (host - launches) + launches  # each stage launches its own layers only
    return seconds.total + (stages - 1.0) * _head_seconds(seconds) + own


def _head_seconds(seconds: Any) -> Array:
    """Seconds of the output head and what follows it, which one stage of a pipeline has and the others do not."""
    operators = seconds.table.operators
    rows = np.flatnonzero((operators.driver == int(Driver.OUTPUT_ROWS)).any(axis=1))
    return np.asarray(seconds.operators[rows].sum(axis=0))
