"""How long a decode step and a prefill take on one replica: one interface, one implementation per fidelity.

`TextbookTiming` is the closed form over totals. Others come from `calc.step`; the sizing steps do not care which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from calc import textbook
from calc.accelerator import Accelerator
from calc.memory.kv import sequence_bytes
from calc.model import ModelSpec
from calc.parameters import count_parameters
from calc.provenance import Estimate, Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One decode step: the estimate, the seconds of each term, and the term that binds."""

    step_s: Estimate
    terms_s: dict[str, float]
    bound: str


class Timing(Protocol):
    """What the sizing steps need to know about time."""

    def decode_s(self, *, batch: Any, context_tokens: float) -> Estimate:
        """Seconds of a decode step of `batch` sequences (array allowed) that each hold `context_tokens`."""

    def decode_step(self, *, batch: int, context_tokens: float) -> StepTime:
        """The same for one batch, with its terms."""

    def prefill_s(self, *, tokens: float, cached_tokens: float) -> Estimate:
        """Seconds to prefill one prompt alone, of which `cached_tokens` need no computing."""


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
        step_s = textbook.decode_step_s(
            **self._inputs(context_tokens), peak_flop_per_s=self.peak_flop_per_s, batch=np.asarray(batch)
        )
        return Estimate.exactly(step_s, Provenance.DATASHEET)

    def decode_step(self, *, batch: int, context_tokens: float) -> StepTime:
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
        seconds = textbook.prefill_s(
            params=self.active_parameters,
            prompt_tokens=tokens,
            cached_tokens=cached_tokens,
            peak_flop_per_s=self.peak_flop_per_s,
            mfu=self.mfu,
        )
        return Estimate.exactly(float(seconds), Provenance.DATASHEET)


def largest_batch(timing: Timing, *, tpot_limit_s: float, context_tokens: float, most: int) -> int:
    """The largest batch up to `most` whose decode step keeps the limit; 0 when one sequence alone misses it.

    Works on any timing that does not get faster with more sequences: two vectorised passes, coarse and then exact.
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
