"""What one replica holds and how quick it is, whatever the traffic that decides how many are needed.

Kept for the last replicas that were asked: the next question is mostly about another rate, price or target for the same one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from calc.expected import Replica, memory_of, replica_curve
from calc.layout import Layout
from calc.memory.engines import Ledger
from calc.model import ModelSpec
from calc.replica_model import replica_model
from calc.result import Inputs, Offer
from calc.scenario import Scenario
from calc.sizing import MemoryStep

KEPT = 128  # replicas: at most some 20 MB
TRAFFIC = (
    "traffic", "rate_per_s", "users", "arrival_cv", "peak_factor", "headroom",
    "ttft_s", "tpot_s", "e2e_s", "percentile", "usd_per_gpu_hour",
)  # fmt: skip
"""Fields of a scenario that say how many replicas are needed or what they cost, and nothing of one."""
AT_DEFAULT = {name: getattr(Scenario(), name) for name in TRAFFIC}


def replica_memory(inputs: Inputs, layout: Layout) -> tuple[MemoryStep, Ledger, int]:
    """Step 1 by the engine's rules, as `calc.expected.memory_of` has it."""
    return _memory(inputs.spec, _Same(inputs.offer), without_traffic(inputs.scenario), layout)


def replica_times(inputs: Inputs, layout: Layout, *, fit: int) -> Replica:
    """The replica at each concurrency up to `fit`, under the scenario's own arrivals."""
    asked = without_traffic(inputs.scenario)
    found = _times(inputs.spec, _Same(inputs.offer), asked, layout, fit)
    return replace(found, workload=inputs.scenario.workload)


@lru_cache(maxsize=KEPT)
def without_traffic(scenario: Scenario) -> Scenario:
    """The scenario with its traffic at the default: equal ones ask the same of one replica."""
    return replace(scenario, **AT_DEFAULT)


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """An offer as a key: this very object, which the key keeps alive; its tables have no hash."""

    offer: Offer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.offer is other.offer

    def __hash__(self) -> int:
        return id(self.offer)


@lru_cache(maxsize=KEPT)
def _memory(
    spec: ModelSpec, same: _Same, scenario: Scenario, layout: Layout
) -> tuple[MemoryStep, Ledger, int]:
    return memory_of(spec, same.offer.accelerator, layout, scenario)


@lru_cache(maxsize=KEPT)
def _times(spec: ModelSpec, same: _Same, scenario: Scenario, layout: Layout, fit: int) -> Replica:
    inputs = Inputs(scenario=scenario, spec=spec, offer=same.offer)
    return replica_curve(replica_model(inputs, layout), scenario, fit=fit)
