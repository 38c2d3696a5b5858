"""The five steps at textbook fidelity: closed forms over a replica's totals (`calc.expected` has the other fidelities)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Any

import numpy as np

from calc import textbook
from calc.accelerator import Accelerator
from calc.memory.kv import sequence_bytes
from calc.model import ModelSpec
from calc.parameters import count_parameters
from calc.provenance import Estimate, Provenance
from calc.sizing import (
    BLOCK_TOKENS,
    DecodeStep,
    FleetStep,
    Limit,
    MemoryStep,
    PrefillStep,
    SequencesStep,
    StepTime,
    mean_context,
    replicas_for_users,
)
from calc.workload import Workload

MOST_SEQUENCES = 1_000_000
"""Where counting ends (our choice): the textbook knows no engine's own limit, and no cache holds so many real requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextbookTiming:
    """Totals over one replica: weights are read once a step, caches once a sequence, 2 FLOP per active parameter."""

    spec: ModelSpec
    active_parameters: int
    weight_bytes: float
    kv_dtype: str
    bandwidth_bytes_per_s: float
    peak_flop_per_s: float
    mfu: float

    @classmethod
    def of(
        cls,
        spec: ModelSpec,
        accelerator: Accelerator,
        *,
        gpus: int,
        weight_bytes: float,
        kv_dtype: str,
        mfu: float,
    ) -> TextbookTiming:
        return cls(
            spec=spec,
            active_parameters=count_parameters(spec).active,
            weight_bytes=weight_bytes,
            kv_dtype=kv_dtype,
            bandwidth_bytes_per_s=accelerator.bandwidth_bytes_per_s * gpus,
            peak_flop_per_s=accelerator.flop_per_s_16bit.flop_per_s * gpus,
            mfu=mfu,
        )

    def _inputs(self, context_tokens: float) -> dict[str, Any]:
        """Arguments of the textbook's decode formulas. k is the mean over the context: windows make it fall."""
        return {
            "params": self.active_parameters,
            "bytes_per_param": self.weight_bytes / self.active_parameters,
            "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s,
            "context": context_tokens,
            "kv_bytes_per_token": sequence_bytes(self.spec, round(context_tokens), kv_dtype=self.kv_dtype)
            / context_tokens,
        }

    def decode_s(self, *, batch: Any, context_tokens: float) -> Estimate:
        """Seconds of a decode step of `batch` sequences (array allowed) that each hold `context_tokens`."""
        step_s = textbook.decode_step_s(
            **self._inputs(context_tokens), peak_flop_per_s=self.peak_flop_per_s, batch=np.asarray(batch)
        )
        return Estimate.exactly(step_s, Provenance.DATASHEET)

    def decode_step(self, *, batch: int, context_tokens: float) -> StepTime:
        """The same for one batch, with its terms."""
        inputs = self._inputs(context_tokens)
        memory_s = textbook.decode_memory_s(**inputs, batch=batch)
        compute_s = textbook.decode_compute_s(
            params=self.active_parameters, batch=batch, peak_flop_per_s=self.peak_flop_per_s
        )
        weights_s = self.weight_bytes / self.bandwidth_bytes_per_s
        return StepTime(
            step_s=Estimate.exactly(float(max(memory_s, compute_s)), Provenance.DATASHEET),
            terms_s={
                "weights": weights_s,
                "kv": float(memory_s - weights_s),
                "compute": float(compute_s),
            },
            bound="memory" if memory_s >= compute_s else "compute",
        )

    def prefill_s(self, *, tokens: float, cached_tokens: float) -> Estimate:
        """Seconds to prefill one prompt alone, of which `cached_tokens` need no computing."""
        seconds = textbook.prefill_s(
            params=self.active_parameters,
            prompt_tokens=tokens,
            cached_tokens=cached_tokens,
            peak_flop_per_s=self.peak_flop_per_s,
            mfu=self.mfu,
        )
        return Estimate.exactly(float(seconds), Provenance.DATASHEET)


def memory_step(
    spec: ModelSpec,
    *,
    gpus: int,
    total_bytes_per_gpu: float,
    overhead_bytes_per_gpu: float,
    weight_bytes: float,
    kv_dtype: str,
    kv_heads: int | None,
    kv_bytes_per_gpu: float | None,
    context_tokens: float,
) -> MemoryStep:
    """What is stored where. `kv_heads` None: the cache cannot be split by head (MLA), every GPU holds all of it.

    `kv_bytes_per_gpu` given: the user's own figure replaces what would be left.
    """
    weight_per_gpu = weight_bytes / gpus
    left = textbook.cache_bytes(
        memory_bytes=total_bytes_per_gpu, weight_bytes=weight_per_gpu, reserved_bytes=overhead_bytes_per_gpu
    )
    room = float(left) if kv_bytes_per_gpu is None else kv_bytes_per_gpu
    copies = gpus if kv_heads is None else max(1, ceil(gpus / kv_heads))
    kv_bytes = room * gpus / copies
    per_token = sequence_bytes(spec, round(context_tokens), kv_dtype=kv_dtype) / context_tokens
    tokens = (
        int(textbook.tokens_that_fit(cache_bytes=kv_bytes, kv_bytes_per_token=per_token)) if per_token else 0
    )
    return MemoryStep(
        gpus=gpus,
        total_bytes_per_gpu=total_bytes_per_gpu,
        weight_bytes_per_gpu=weight_per_gpu,
        overhead_bytes_per_gpu=overhead_bytes_per_gpu,
        kv_bytes_per_gpu=room,
        kv_copies=copies,
        kv_bytes_per_token=per_token,
        kv_bytes=kv_bytes,
        tokens=tokens,
    )


def sequences_step(
    memory: MemoryStep,
    workload: Workload,
    timing: TextbookTiming,
    *,
    paged: bool,
    reserved_tokens: float,
    tpot_limit_s: float | None,
    max_seqs: int | None,
) -> SequencesStep:
    """How many sequences run at once: as many as the cache holds, the TPOT target allows, and the engine takes."""
    kept = workload.input.mean_tokens + workload.output.mean_tokens
    by_paging = int(
        textbook.sequences_paged(tokens=memory.tokens, sequence_tokens=kept, block_size=BLOCK_TOKENS)
    )
    by_reserving = int(
        textbook.sequences_reserved(tokens=memory.tokens, reserved_tokens=max(kept, reserved_tokens))
    )
    fit = by_paging if paged else by_reserving
    most = min(fit, MOST_SEQUENCES)
    by_tpot = None
    if tpot_limit_s is not None:
        by_tpot = largest_batch(
            timing,
            tpot_limit_s=tpot_limit_s,
            context_tokens=mean_context(workload),
            most=max(2 * most, 4096),
        )
    limits = {
        Limit.KV_MEMORY: float(most),
        Limit.TPOT: inf if by_tpot is None else float(by_tpot),
        Limit.MAX_SEQS: inf if max_seqs is None else float(max_seqs),
    }
    binding = textbook.binding_limit(limits)
    return SequencesStep(
        kept_tokens=kept,
        reserved_tokens=reserved_tokens,
        paged=by_paging,
        reserved=by_reserving,
        fit=fit,
        by_tpot=by_tpot,
        by_limit=max_seqs,
        batch=int(limits[binding]),
        binding=binding,
    )


def largest_batch(timing: TextbookTiming, *, tpot_limit_s: float, context_tokens: float, most: int) -> int:
    """The largest batch up to `most` whose decode step keeps the limit; 0 when one sequence alone misses it.

    A step does not get faster with more sequences: two vectorised passes, coarse and then exact.
    """
    if most < 1:
        return 0
    coarse = np.unique(np.rint(np.geomspace(1, most, 64)).astype(int))
    kept = np.asarray(timing.decode_s(batch=coarse, context_tokens=context_tokens).best) <= tpot_limit_s
    if kept.all():
        return most
    first_missed = int(np.argmin(kept))
    if first_missed == 0:
        return 0
    low, high = int(coarse[first_missed - 1]), int(coarse[first_missed])
    while high - low > 1:
        grid = np.unique(np.linspace(low, high, 64).astype(int))
        kept = np.asarray(timing.decode_s(batch=grid, context_tokens=context_tokens).best) <= tpot_limit_s
        kept[0], kept[-1] = True, False
        first_missed = int(np.argmin(kept))
        low, high = int(grid[first_missed - 1]), int(grid[first_missed])
    return low


def decode_step(timing: TextbookTiming, workload: Workload, *, batch: int) -> DecodeStep:
    """One decode step of a full batch."""
    context = mean_context(workload)
    time = timing.decode_step(batch=batch, context_tokens=context)
    return DecodeStep(
        batch=batch,
        context_tokens=context,
        time=time,
        tokens_per_s=float(textbook.tokens_per_s(batch=batch, step_s=time.step_s.best)),
    )


def prefill_step(timing: TextbookTiming, workload: Workload) -> PrefillStep:
    """One prompt of mean length alone on the replica; what the prefix cache holds is not computed again."""
    prompt = workload.input.mean_tokens
    cached = min(prompt * workload.prefix_share, prompt - 1)
    return PrefillStep(
        prompt_tokens=prompt,
        cached_tokens=cached,
        prefill_s=timing.prefill_s(tokens=prompt, cached_tokens=cached),
    )


def fleet_step(
    workload: Workload, decode: DecodeStep, prefill: PrefillStep, *, slots: int, headroom: float
) -> FleetStep:
    """Replicas for the work that arrives per second (open traffic), or for the users who wait (closed traffic).

    `slots`: sequences that one replica may run at once. Closed traffic fills slots, so slots in use over slots is its
    utilisation; open traffic brings work, so work per second over replicas is.
    """
    output = workload.output.mean_tokens
    e2e = prefill.prefill_s.plus(decode.time.step_s.scaled(output - 1))
    if workload.rate_per_s is None:
        active = float(workload.concurrency or 0) * workload.peak_factor
        rate = active / e2e.best
        busy = active / slots
        prefill_busy = busy * prefill.prefill_s.best / e2e.best
        decode_busy = busy - prefill_busy
        replicas = replicas_for_users(workload, batch=slots, headroom=headroom)
    else:
        rate = workload.rate_per_s * workload.peak_factor
        active = rate * e2e.best
        prefill_busy = float(textbook.prefill_gpus(rate_per_s=rate, prefill_s=prefill.prefill_s.best))
        decode_busy = float(
            textbook.decode_gpus(rate_per_s=rate, output_tokens=output, tokens_per_s=decode.tokens_per_s)
        )
        busy = prefill_busy + decode_busy
        replicas = max(1, int(textbook.gpus_to_buy(busy_gpus=busy, headroom=headroom)))
    return FleetStep(
        rate_per_s=rate,
        e2e_s=e2e,
        active=active,
        prefill_busy=prefill_busy,
        decode_busy=decode_busy,
        replicas=replicas,
        utilization=busy / replicas,
    )
