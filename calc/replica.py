"""What one replica holds and how quick it is, whatever the traffic that decides how many are needed.

Kept for the last replicas that were asked: the next question is mostly about another rate, price or target for the same one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from calc.expected import Replica, decode_at, memory_of, prefill_of, replica_curve
from calc.layout import Layout
from calc.memory.engines import Ledger
from calc.model import ModelSpec
from calc.replica_model import replica_model
from calc.result import Inputs, Offer
from calc.scenario import Scenario
from calc.sizing import DecodeStep, MemoryStep, PrefillStep

KEPT = 128  # replicas: at most some 20 MB
KEPT_PASSES = 1024  # a few numbers each
TRAFFIC = (
    "traffic", "rate_per_s", "users", "arrival_cv", "peak_factor", "headroom",
    "ttft_s", "tpot_s", "e2e_s", "percentile", "usd_per_gpu_hour",
)  # fmt: skip
"""Fields of a scenario that say how many replicas are needed or what they cost, and nothing of one."""
AT_DEFAULT = {name: getattr(Scenario(), name) for name in TRAFFIC}


def replica_memory(inputs: Inputs, layout: Layout) -> tuple[MemoryStep, Ledger, int]:
    """Step 1 by the engine's rules, as `calc.expected.memory_of` has it."""
    return _memory(_Question.of(inputs, layout))


def replica_times(inputs: Inputs, layout: Layout, *, fit: int) -> Replica:
    """The replica at each concurrency up to `fit`, under the scenario's own arrivals."""
    return replace(_times(_Question.of(inputs, layout), fit), workload=inputs.scenario.workload)


def replica_passes(
    inputs: Inputs, layout: Layout, *, fit: int, users: float
) -> tuple[DecodeStep, PrefillStep]:
    """Steps 3 and 4: a decode step and a prompt where `users` are served at once."""
    question = _Question.of(inputs, layout)
    held = _times(question, fit).cached(users)
    return _decode(question, fit, max(1, round(users))), _prefill(question, fit, held)


@lru_cache(maxsize=KEPT)
def without_traffic(scenario: Scenario) -> Scenario:
    """The scenario with its traffic at the default: equal ones ask the same of one replica."""
    return replace(scenario, **AT_DEFAULT)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Question:
    """What is asked of one replica, as a key.

    An offer's tables have no hash: it counts as equal to itself alone, and the key keeps it alive.
    """

    spec: ModelSpec
    offer: Offer
    scenario: Scenario
    layout: Layout

    @classmethod
    def of(cls, inputs: Inputs, layout: Layout) -> _Question:
        return cls(
            spec=inputs.spec, offer=inputs.offer, scenario=without_traffic(inputs.scenario), layout=layout
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self.offer is other.offer and self._rest == other._rest

    def __hash__(self) -> int:
        return hash((id(self.offer), self._rest))

    @property
    def _rest(self) -> tuple[ModelSpec, Scenario, Layout]:
        return self.spec, self.scenario, self.layout


@lru_cache(maxsize=KEPT)
def _memory(question: _Question) -> tuple[MemoryStep, Ledger, int]:
    return memory_of(question.spec, question.offer.accelerator, question.layout, question.scenario)


@lru_cache(maxsize=KEPT)
def _times(question: _Question, fit: int) -> Replica:
    inputs = Inputs(scenario=question.scenario, spec=question.spec, offer=question.offer)
    return replica_curve(replica_model(inputs, question.layout), question.scenario, fit=fit)


@lru_cache(maxsize=KEPT_PASSES)
def _decode(question: _Question, fit: int, batch: int) -> DecodeStep:
    return decode_at(_times(question, fit), batch, question.scenario)


@lru_cache(maxsize=KEPT_PASSES)
def _prefill(question: _Question, fit: int, held: tuple[float, float, float]) -> PrefillStep:
    return prefill_of(_times(question, fit), held)
