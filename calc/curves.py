"""Curves that pages draw: one result over a swept axis, with the points that a reader should see named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calc.arrays import Numbers
from calc.errors import InputError
from calc.memory.engines import LineKind
from calc.memory.kv import sequence_bytes, state_bytes_per_sequence, windows
from calc.model import ModelSpec
from calc.operators import ForwardPass
from calc.parameters import count_parameters
from calc.provenance import Estimate
from calc.replica_model import replica_model
from calc.result import Answer
from calc.roofline import memory_bound_batch
from calc.scenario import Fidelity
from calc.sized import replica_weight_bytes, timing_of
from calc.sizing import Limit

LONGEST_DEFAULT = 131_072
"""Tokens up to which a model is drawn that states no limit (assumed: the usual long context of 2024-2026 models)."""

LARGEST_BATCH = 16_384
BATCH_POINTS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCurve:
    """Bytes of one sequence against its length.

    `state_bytes`: what it holds at length 0. `kinks`: lengths from which a windowed group stops growing, with its
    layers.
    """

    tokens: tuple[int, ...]
    bytes: tuple[int, ...]
    state_bytes: int
    kinks: tuple[tuple[int, int], ...]


def context_curve(spec: ModelSpec, *, kv_dtype: str) -> ContextCurve:
    """Cache and state of one sequence from one token to the model's longest, doubling, window edges included."""
    longest = spec.max_positions or LONGEST_DEFAULT
    kinks = tuple((w.window, w.layers) for w in windows(spec, kv_dtype) if w.window < longest)
    doubling = 2.0 ** np.arange(0, np.log2(longest) + 1e-9, 0.5)
    tokens = sorted({*np.rint(doubling).astype(int).tolist(), *(window for window, _ in kinks), longest})
    return ContextCurve(
        tokens=tuple(tokens),
        bytes=tuple(sequence_bytes(spec, n, kv_dtype) for n in tokens),
        state_bytes=state_bytes_per_sequence(spec),
        kinks=kinks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBar:
    """Where the memory of one GPU goes, in bytes, in the order in which it stacks.

    `wall_bytes`: where the KV cache ends. `peak_bytes`: where the sequences active at peak would end; past the wall,
    they wait. None where nothing serves. `limit_bytes`: where the most sequences that a replica may run would end; None
    where that is the wall.
    """

    parts: tuple[tuple[str, float], ...]
    wall_bytes: float
    peak_bytes: float | None
    limit_bytes: float | None
    active_per_replica: float | None


def memory_bar(result: Answer) -> MemoryBar:
    """The bar of the replica's tightest GPU: by the engine's ledger where the fidelity has one, else by totals."""
    memory = result.memory
    parts = _ledger_parts(result) if result.ledger else _total_parts(result)
    below = sum(size for name, size in parts if name not in {"kv", "free"})
    room = max(0.0, memory.kv_bytes_per_gpu)
    free = max(0.0, memory.total_bytes_per_gpu - below - room)
    peak = active = limit = None
    if result.fleet is not None and result.sequences is not None:
        active = result.fleet.active_per_replica
        peak = below + room * active / result.sequences.fit
        if result.sequences.batch < result.sequences.fit:
            limit = below + room * result.sequences.batch / result.sequences.fit
    return MemoryBar(
        parts=(*parts, ("kv", room), ("free", free)),
        wall_bytes=below + room if room else memory.total_bytes_per_gpu,
        peak_bytes=peak,
        limit_bytes=limit,
        active_per_replica=active,
    )


def _total_parts(result: Answer) -> tuple[tuple[str, float], ...]:
    memory = result.memory
    return (("weights", memory.weight_bytes_per_gpu), ("overhead", memory.overhead_bytes_per_gpu))


def _ledger_parts(result: Answer) -> tuple[tuple[str, float], ...]:
    """Weights, activations, and everything else that the engine or the driver keeps."""
    if result.ledger is None:
        return ()
    rank = result.ledger.tightest
    weights, activations = rank.bytes_of(LineKind.WEIGHTS), rank.bytes_of(LineKind.ACTIVATION)
    other = (LineKind.NON_TORCH, LineKind.GRAPHS, LineKind.STATES, LineKind.RESERVE)
    overhead = sum(rank.bytes_of(kind) for kind in other)
    return (("weights", weights), ("activations", activations), ("overhead", overhead))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """A replica's decode step against its batch at one fidelity.

    `wall`: sequences that the KV cache holds. `target`: largest batch that keeps the TPOT target. `compute_from`:
    batch from which the weights' arithmetic takes longer than their read. `at`: the largest batch that the answer allows, and
    `ended_by` what ends it.
    """

    fidelity: str
    batch: tuple[int, ...]
    step_s: Estimate
    tokens_per_s: Estimate
    wall: int
    target: int | None
    compute_from: float
    at: int
    ended_by: Limit
    at_step_s: Estimate
    at_tokens_per_s: Estimate
    doubled_step_s: Estimate

    @property
    def gain_of_doubling(self) -> float:
        """Tokens per second at twice the batch over those at the batch."""
        return float(2.0 * self.at_step_s.best / self.doubled_step_s.best)


def batch_curve(result: Answer, fidelity: str) -> BatchCurve:
    """The curve of the answer's replica, timed at `fidelity`, from one sequence to twice what matters.

    Raises `MissingSpec` where the fidelity needs a profile and none was loaded, `InputError` where nothing serves.
    """
    sequences = result.sequences
    if sequences is None or result.decode is None:
        raise InputError(
            "batch", 0, "nothing serves here, so there is no batch to sweep", next_step=result.verdict.reason
        )
    inputs, accelerator = result.inputs, result.inputs.offer.accelerator
    compute_from = float(
        memory_bound_batch(
            bytes_per_param=replica_weight_bytes(inputs) / count_parameters(inputs.spec).active,
            peak_flop_per_s=accelerator.flop_per_s_16bit.flop_per_s,
            bandwidth_bytes_per_s=accelerator.bandwidth_bytes_per_s,
        )
    )
    decode_s = decode_seconds(result, fidelity, result.decode.context_tokens)
    furthest = int(np.clip(2 * max(sequences.fit, compute_from), 64, LARGEST_BATCH))
    batch = np.unique(np.rint(np.geomspace(1, furthest, BATCH_POINTS)))
    at = max(1, sequences.batch)
    step_s, marked = decode_s(batch), decode_s(np.array([at, 2.0 * at]))
    return BatchCurve(
        fidelity=str(fidelity),
        batch=tuple(batch.astype(int).tolist()),
        step_s=step_s,
        tokens_per_s=_rate(batch, step_s),
        wall=sequences.fit,
        target=sequences.by_tpot,
        compute_from=compute_from,
        at=at,
        ended_by=sequences.binding,
        at_step_s=marked.candidate(0),
        at_tokens_per_s=_rate(at, marked.candidate(0)),
        doubled_step_s=marked.candidate(1),
    )


def decode_seconds(
    result: Answer, fidelity: str, context: float, *, tokens: float | Numbers = 1.0
) -> Callable[[Numbers], Estimate]:
    """Seconds of a decode step of the answer's replica as a function of the batch (an array).

    `tokens`: how many each sequence enters with, one for all or one for each batch; more than one where drafts are checked (not at textbook fidelity).
    """
    inputs = result.inputs
    if fidelity == Fidelity.TEXTBOOK:
        timing = timing_of(inputs, result.layout, replica_weight_bytes(inputs))
        return lambda batch: timing.decode_s(batch=batch, context_tokens=context)
    model = replica_model(inputs, result.layout, fidelity=fidelity)
    return lambda batch: (
        model.step(
            ForwardPass(decode_sequences=batch, decode_context=context, tokens_per_sequence=tokens)
        ).total
    )


def _rate(batch: Numbers, step_s: Estimate) -> Estimate:
    """Tokens per second of a step: the slowest step gives the lowest rate."""
    return Estimate(
        low=batch / step_s.high,
        best=batch / step_s.best,
        high=batch / step_s.low,
        provenance=step_s.provenance,
    )
