"""Levers: one thing changed at a time, and the whole answer asked again.

A lever is a set of scenario settings, so that a page can apply it with one click and the effect is never a formula of
its own. Its kind says what it does to the output: the same tokens, the same distribution, or an approximation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from calc.answer import Answer, Inputs, answer
from calc.errors import InputError, MissingSpec
from calc.scenario import Fidelity, apply_settings
from calc.sized import format_support, replica_weight_bytes
from calc.verdict import Change


class Kind(StrEnum):
    """What a lever does to the output."""

    SAME_OUTPUT = "same output"
    SAME_DISTRIBUTION = "same distribution"
    APPROXIMATE = "approximate"
    DIFFERENT_TASK = "asks for less"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change that may help, and what it does to the output."""

    change: Change
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverEffect:
    """The answer before a lever and after it."""

    lever: Lever
    before: Answer
    after: Answer

    @property
    def gpus_saved(self) -> int:
        return self.before.gpus - self.after.gpus


def candidate_levers(inputs: Inputs) -> tuple[Lever, ...]:
    """Levers that would change something in this scenario."""
    scenario = inputs.scenario
    prefix = 0.5 if scenario.prefix_share < 0.5 else (1 + scenario.prefix_share) / 2
    levers = [
        _lever("fp8 weights", Kind.APPROXIMATE, quantization="fp8"),
        _lever("int8 weights", Kind.APPROXIMATE, quantization="int8"),
        _lever("int4 weights, groups of 128", Kind.APPROXIMATE, quantization="int4-g128"),
        _lever("fp8 KV cache", Kind.APPROXIMATE, kv_dtype="fp8"),
        _lever("int8 weights and fp8 KV cache", Kind.APPROXIMATE, quantization="int8", kv_dtype="fp8"),
        _lever(f"prefix cache holds {prefix:.0%} of prompts", Kind.SAME_OUTPUT, prefix_share=str(prefix)),
        _lever(
            "outputs half as long",
            Kind.DIFFERENT_TASK,
            output_tokens=str(max(1.0, scenario.output_tokens / 2)),
        ),
    ]
    if scenario.fidelity == Fidelity.TEXTBOOK:  # the engines of the other fidelities page always
        levers += [
            _lever("paging instead of reservation", Kind.SAME_OUTPUT, paged="true"),
            _lever("reservation instead of paging", Kind.SAME_OUTPUT, paged="false"),
        ]
    levers += [_lever(f"tensor parallel over {tp}", Kind.SAME_OUTPUT, tp=str(tp)) for tp in (1, 2, 4, 8)]
    return tuple(_with_freed_room(inputs, lever) for lever in levers if _changes_something(inputs, lever))


def lever_effects(base: Answer) -> tuple[LeverEffect, ...]:
    """Every lever's effect on `base`, in the order of `candidate_levers`; those that cannot be answered are left out."""
    effects = []
    for lever in candidate_levers(base.inputs):
        after = _answer_with(base.inputs, lever.change)
        if after is not None and not (
            lever.change.settings[0][0] == "tp" and after.layout.tp == base.layout.tp
        ):
            effects.append(LeverEffect(lever=lever, before=base, after=after))
    return tuple(effects)


def _lever(text: str, kind: Kind, **settings: str) -> Lever:
    return Lever(change=Change(text=text, settings=tuple(settings.items())), kind=kind)


def _changes_something(inputs: Inputs, lever: Lever) -> bool:
    """Whether the lever changes the scenario, into one whose formats the engine serves on the accelerator."""
    try:
        changed = apply_settings(inputs.scenario, lever.change.settings)
    except InputError:
        return False
    return changed != inputs.scenario and bool(format_support(replace(inputs, scenario=changed)))


def _answer_with(inputs: Inputs, change: Change) -> Answer | None:
    """The answer after a change; None where this accelerator has no number for it or the layout does not exist."""
    try:
        return answer(replace(inputs, scenario=apply_settings(inputs.scenario, change.settings)))
    except (InputError, MissingSpec):
        return None


def _with_freed_room(inputs: Inputs, lever: Lever) -> Lever:
    """A room for the cache that the person typed belongs to the weights of before: lighter weights add what they free."""
    room = inputs.scenario.kv_bytes_per_gpu
    if room is None:
        return lever
    changed = replace(inputs, scenario=apply_settings(inputs.scenario, lever.change.settings))
    gpus = max(1, changed.scenario.tp) * changed.scenario.pp
    freed = (replica_weight_bytes(inputs) - replica_weight_bytes(changed)) / gpus
    if freed == 0:
        return lever
    settings = (*lever.change.settings, ("kv_bytes_per_gpu", repr(max(1.0, room + freed))))
    return replace(lever, change=replace(lever.change, settings=settings))
