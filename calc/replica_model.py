"""The step model of an answer's replica: the scenario's formats, layout, engine and profile, compiled once."""

from __future__ import annotations

from calc.errors import MissingSpec
from calc.expected import stated
from calc.layout import Layout
from calc.result import Inputs
from calc.scenario import Fidelity
from calc.step import StepModel


def replica_model(inputs: Inputs, layout: Layout, *, fidelity: str | None = None) -> StepModel:
    """The model that times one replica; at textbook fidelity, which has no operators, the roofline's.

    Raises `MissingSpec` where no profile of the engine on this accelerator was loaded.
    """
    scenario, offer = inputs.scenario, inputs.offer
    if offer.profile is None:
        raise MissingSpec(
            f"No profile of {offer.accelerator.name} under {scenario.engine} was loaded.",
            next_step="Choose textbook fidelity, or another engine.",
        )
    asked = fidelity or scenario.fidelity
    return StepModel.of(
        inputs.spec,
        offer.accelerator,
        layout,
        offer.profile,
        fidelity=Fidelity.ROOFLINE if asked == Fidelity.TEXTBOOK else asked,
        quantization=stated(scenario.quantization),
        kv_dtype=scenario.kv_format,
    )
