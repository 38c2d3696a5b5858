"""Step time: operators, rates and links into seconds, with a range; TTFT and TPOT at fixed concurrency."""

from calc.step.estimate import (
    Fidelity,
    ServingPoint,
    StepEstimate,
    StepModel,
    serving_point,
    step_estimate,
)

__all__ = [
    "Fidelity",
    "ServingPoint",
    "StepEstimate",
    "StepModel",
    "serving_point",
    "step_estimate",
]
