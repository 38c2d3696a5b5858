"""Step time: operators, rates and links into seconds, with a range; TTFT and TPOT at fixed concurrency."""

from calc.step.drafting import speculative_tpot_s
from calc.step.estimate import (
    Fidelity,
    ServingPoint,
    StepEstimate,
    StepModel,
)
from calc.step.offline import OfflineWork, offline_tokens_per_s
from calc.step.offload import offloaded_step
from calc.step.results import binding

__all__ = [
    "Fidelity",
    "OfflineWork",
    "ServingPoint",
    "StepEstimate",
    "StepModel",
    "binding",
    "offline_tokens_per_s",
    "offloaded_step",
    "speculative_tpot_s",
]
