"""What the step model answers: `StepEstimate` for one pass, `ServingPoint` for a replica at fixed concurrency."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calc.profile import Evidence
from calc.provenance import Estimate
from calc.roofline import Bound
from calc.step.seconds import PassSeconds
from calc.step.serving import Interleaved


def _first(estimate: Estimate) -> dict[str, float]:
    """The range of the first candidate."""
    ends = (estimate.low, estimate.best, estimate.high)
    return dict(zip(("low", "best", "high"), (float(np.atleast_1d(end)[0]) for end in ends), strict=True))


def binding(terms: dict[str, Any]) -> Any:
    """The largest of memory, compute, communication and overhead, per candidate."""
    memory = terms["weights"] + terms["kv"] + terms["activations"]
    sides = np.stack(np.broadcast_arrays(memory, terms["compute"], terms["communication"], terms["overhead"]))
    names = np.array([str(Bound.MEMORY), str(Bound.COMPUTE), str(Bound.COMMUNICATION), str(Bound.OVERHEAD)])
    return names[np.argmax(sides, axis=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimate:
    """One forward pass. `total`: seconds; `operators`: the table and the seconds of every row, all repetitions.

    `floor_s`: what it takes at the datasheet's peaks. `evidence`: on what the answer stands.
    """

    total: Estimate
    operators: PassSeconds
    floor_s: Any
    evidence: Evidence

    @property
    def terms(self) -> dict[str, Any]:
        """The best estimate's seconds by cause, per candidate."""
        return self.operators.terms()

    @property
    def bound(self) -> Any:
        """What takes the largest part of the pass, per candidate."""
        return binding(self.terms)

    def as_json(self) -> dict[str, Any]:
        """The first candidate's seconds, bound and terms, in the names of the command line's contract."""
        terms = self.terms
        return {
            "s": _first(self.total),
            "bound": str(np.atleast_1d(binding(terms))[0]),
            "terms": {name: float(np.atleast_1d(term)[0]) for name, term in terms.items()},
        }

    def rows(self, candidate: int = 0) -> list[dict[str, object]]:
        """One candidate's operators as records, with seconds and share of the kernels' time."""
        seconds = self.operators.operators[:, candidate]
        whole = float(seconds.sum()) or 1.0
        return [
            {**row, "s": float(own), "share": float(own) / whole}
            for row, own in zip(self.operators.table.rows(candidate), seconds, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPoint:
    """What users of a replica feel at fixed concurrency.

    `tpot_s`: (end to end - TTFT)/(n - 1), the gap between tokens. `tpot_with_first_s`: end to end over n, the other
    definition. `prefill_s`: one prompt from start to end, once it runs. `state`: "stable", "near saturation" or
    "saturated" by the share of time that prompts take. `parts`: the solved fixed point, with what it was made of.
    """

    ttft_s: Estimate
    tpot_s: Estimate
    tpot_with_first_s: Estimate
    e2e_s: Estimate
    tokens_per_s: Estimate
    tokens_per_s_per_gpu: Estimate
    decoding: Any
    prefill_s: Any
    prefill_share: Any
    state: Any
    decode: StepEstimate
    evidence: Evidence
    parts: Interleaved

    def shared_by(self, users_per_running: float, *, output_tokens: float) -> ServingPoint:
        """The times of all users where the cache holds only some: `users_per_running` (from 1) for each that runs.

        Those who run make what they make, so everybody's time grows by that share; who waits, waits for the first token.
        Source: Little's law over everybody, at the throughput of those who run. Ignores: that a queue's length varies.
        """
        whole = self.e2e_s.scaled(users_per_running)
        later = self.tpot_s.scaled((users_per_running - 1.0) * max(output_tokens - 1.0, 0.0))
        return replace(
            self,
            ttft_s=self.ttft_s.scaled(users_per_running).plus(later),
            e2e_s=whole,
            tpot_with_first_s=whole.scaled(1.0 / output_tokens),
            state=np.where(np.asarray(self.state) == "saturated", "saturated", "near saturation"),
        )

    def as_json(self) -> dict[str, Any]:
        """One candidate (the first) as a JSON record, in the names of the command line's contract."""
        decode = self.decode.as_json()
        return {
            "ttft_s": _first(self.ttft_s),
            "tpot_s": _first(self.tpot_s),
            "tpot_with_first_s": _first(self.tpot_with_first_s),
            "e2e_s": _first(self.e2e_s),
            "tokens_per_s": _first(self.tokens_per_s),
            "tokens_per_s_per_gpu": _first(self.tokens_per_s_per_gpu),
            "decoding": float(np.atleast_1d(self.decoding)[0]),
            "prefill_share": float(np.atleast_1d(self.prefill_share)[0]),
            "bound": decode["bound"],
            "terms": decode["terms"],
            "state": str(np.atleast_1d(self.state)[0]),
            "evidence": str(self.evidence),
        }
