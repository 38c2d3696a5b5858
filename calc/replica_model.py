"""The step model of a replica: the scenario's formats, layout, engine settings and profile, compiled once.

Whatever times a replica at roofline or expected fidelity (the answer, curves, worked formulas, the simulator's clock)
asks here, so that all of them time the same one.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from calc.errors import MissingSpec
from calc.layout import Layout
from calc.memory.flag_scope import default_step_tokens
from calc.profile import Profile, Schedule
from calc.result import Inputs
from calc.scenario import Fidelity, Scenario, stated
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
        tuned(offer.profile, scenario, layout),
        fidelity=Fidelity.ROOFLINE if asked == Fidelity.TEXTBOOK else asked,
        quantization=stated(scenario.quantization),
        kv_dtype=scenario.kv_format,
        lora_rank=scenario.adapter_rank if scenario.adapters else 0,
        lora_adapters=scenario.adapters,
    )


def tuned(profile: Profile, scenario: Scenario, layout: Layout) -> Profile:
    """The profile with the token budget of one scheduler's step, and with prompts alone where they are not chunked."""
    engine = profile.engine
    own = default_step_tokens(engine.engine, engine.chunk_tokens, layout)
    chunk = scenario.max_batched_tokens or own
    if chunk != engine.chunk_tokens:
        engine = replace(engine, chunk_tokens=chunk)
    if not scenario.chunked_prefill:
        longest = max(engine.chunk_tokens, ceil(scenario.input_tokens))
        engine = replace(engine, schedule=Schedule.PREFILL_FIRST, chunk_tokens=longest)
    return profile if engine is profile.engine else replace(profile, engine=engine)
