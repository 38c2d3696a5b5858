"""Levers: one thing changed at a time, and the whole answer asked again.

A lever is a set of scenario settings, so that a page can apply it with one click and the effect is never a formula of
its own. Its kind says what it does to the output: the same tokens, the same distribution, or an approximation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from calc import format as fmt
from calc.answer import answer
from calc.engine import ENGINE_NAMES, LLAMA_CPP_ENGINES, engine_named
from calc.errors import InputError, MissingSpec
from calc.kv_offload import ROOM_BYTES_PER_GPU
from calc.model import Attention, ModelSpec, Sublayer
from calc.plan.screen import is_foreign
from calc.plan.search import search
from calc.plan.space import question_of
from calc.result import Answer, Inputs
from calc.scenario import Behind, Fidelity, Scenario
from calc.scenario_text import apply_settings
from calc.sized import format_support, replica_weight_bytes
from calc.verdict import Change


class Kind(StrEnum):
    """What a lever does to the output."""

    SAME_OUTPUT = "same output"
    SAME_DISTRIBUTION = "same distribution"
    APPROXIMATE = "approximate"
    DIFFERENT_TASK = "asks for less"
    DIFFERENT_MODEL = "another model"


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
        """GPUs fewer than before, of the same kind; 0 where the change does not work or is another card."""
        same = self.after.inputs.offer.accelerator.id == self.before.inputs.offer.accelerator.id
        return self.before.gpus - self.after.gpus if same and self.after.verdict.fits else 0


def candidate_levers(inputs: Inputs) -> tuple[Lever, ...]:
    """Levers that would change something in this scenario."""
    scenario = inputs.scenario
    levers = [*_format_levers(), *_traffic_levers(inputs)]
    if scenario.fidelity == Fidelity.TEXTBOOK:  # the engines of the other fidelities page always
        levers += [
            _lever("paging instead of reservation", Kind.SAME_OUTPUT, paged="true"),
            _lever("reservation instead of paging", Kind.SAME_OUTPUT, paged="false"),
        ]
    else:
        levers += _scheduling_levers(inputs)
    levers += [_lever(f"tensor parallel over {tp}", Kind.SAME_OUTPUT, tp=str(tp)) for tp in (1, 2, 4, 8)]
    return tuple(_with_freed_room(inputs, lever) for lever in levers if _changes_something(inputs, lever))


def _format_levers() -> list[Lever]:
    return [
        _lever("fp8 weights", Kind.APPROXIMATE, quantization="fp8"),
        _lever("int8 weights", Kind.APPROXIMATE, quantization="int8"),
        _lever("int4 weights, groups of 128", Kind.APPROXIMATE, quantization="int4-g128"),
        _lever("NVFP4 weights", Kind.APPROXIMATE, quantization="nvfp4"),
        _lever("Q4_K_M weights", Kind.APPROXIMATE, quantization="q4_k_m"),
        _lever("fp8 KV cache", Kind.APPROXIMATE, kv_dtype="fp8"),
        _lever("Q8_0 KV cache", Kind.APPROXIMATE, kv_dtype="q8_0"),
        _lever("int8 weights and fp8 KV cache", Kind.APPROXIMATE, quantization="int8", kv_dtype="fp8"),
    ]


def _traffic_levers(inputs: Inputs) -> list[Lever]:
    scenario = inputs.scenario
    share = scenario.prefix_share
    prefix = 0.5 if share < 0.5 else (1 + share) / 2
    levers = [
        _lever(
            f"prefix cache holds {prefix:.0%} of prompts",
            Kind.SAME_OUTPUT,
            prefix_share=str(prefix),
            prefix_caching="true",
        ),
        _lever(
            "outputs half as long",
            Kind.DIFFERENT_TASK,
            output_tokens=str(max(1.0, scenario.output_tokens / 2)),
        ),
    ]
    if share > 0 and scenario.prefix_caching:
        levers.append(_lever("no prefix cache", Kind.SAME_OUTPUT, prefix_caching="false"))
    return levers


DRAFTS = 4  # proposals a pass: what engines' examples draft with
BATCH_CAP = 64
EXPERT_DEGREES = (4, 8)  # GPUs of a host over which engines' guides spread experts
SMALL_BUDGET = 2048  # vLLM's default token budget on smaller cards


def _scheduling_levers(inputs: Inputs) -> list[Lever]:
    """How the engine fits prompts, drafts and batches together, and which engine; only where the step model sees it."""
    scenario = inputs.scenario
    levers = [
        _lever(
            f"prompts in chunks of {SMALL_BUDGET:,} tokens",
            Kind.SAME_OUTPUT,
            max_batched_tokens=str(SMALL_BUDGET),
        ),
        _lever("whole prompts, decoding waits", Kind.SAME_OUTPUT, chunked_prefill="false"),
        _lever("prefill and decode on pools of their own", Kind.SAME_OUTPUT, disaggregated="true"),
        _lever(
            f"{DRAFTS} drafts a pass, {scenario.acceptance:.0%} kept",
            Kind.SAME_DISTRIBUTION,
            draft_tokens=str(DRAFTS),
        ),
        *_offload_levers(scenario),
        _lever("pipeline of 2 stages", Kind.SAME_OUTPUT, pp="2", tp=str(max(1, scenario.tp))),
    ]
    if inputs.spec.has_experts and scenario.engine not in LLAMA_CPP_ENGINES:
        levers += [
            _lever(
                f"experts and attention over {gpus} GPUs",
                Kind.SAME_OUTPUT,
                tp=str(gpus),
                ep=str(gpus),
                attention_dp=str(gpus),
            )
            for gpus in EXPERT_DEGREES
        ]
    if scenario.max_seqs is None or scenario.max_seqs > BATCH_CAP:
        levers.append(_lever(f"at most {BATCH_CAP} sequences", Kind.SAME_OUTPUT, max_seqs=str(BATCH_CAP)))
    levers += [
        _lever(f"{ENGINE_NAMES.get(engine_named(engine), engine)} as engine", Kind.SAME_OUTPUT, engine=engine)
        for engine, _ in inputs.engine_offers
    ]
    return levers


def _offload_levers(scenario: Scenario) -> list[Lever]:
    """Memory behind the card, where prompts repeat text that may have been pushed off it by the time it comes back."""
    if scenario.prefix_share == 0 or scenario.reuse_after_s is None or not scenario.prefix_caching:
        return []
    return [
        _lever(
            f"KV offload to {place} per GPU",
            Kind.SAME_OUTPUT,
            kv_offload=behind,
            kv_offload_bytes="none",
        )
        for behind, place in (
            (Behind.HOST, f"host memory, {fmt.binary_bytes(ROOM_BYTES_PER_GPU[Behind.HOST])}"),
            (Behind.SSD, f"SSD, {fmt.decimal_bytes(ROOM_BYTES_PER_GPU[Behind.SSD])}"),
        )
    ]


GROUPED_HEADS = 8  # KV heads of most grouped-query models (Llama 3, Qwen 3, Mistral)


def grouped_heads(spec: ModelSpec) -> ModelSpec | None:
    """The same model with the keys and values of 8 heads in its cache; None where no layer has more.

    What grouped-query attention would save in the cache (Ainslie et al. 2023, arXiv 2305.13245); weights stay as they are,
    and a model has to be trained so.
    """

    def fewer(sublayer: Sublayer) -> Sublayer:
        if not isinstance(sublayer, Attention) or sublayer.n_kv_heads <= GROUPED_HEADS:
            return sublayer
        return sublayer if sublayer.n_heads % GROUPED_HEADS else replace(sublayer, n_kv_heads=GROUPED_HEADS)

    stacks = tuple(
        replace(
            stack,
            runs=tuple(
                replace(run, block=replace(run.block, sublayers=tuple(map(fewer, run.block.sublayers))))
                for run in stack.runs
            ),
        )
        for stack in spec.stacks
    )
    return None if stacks == spec.stacks else replace(spec, stacks=stacks)


def lever_effects(base: Answer) -> tuple[LeverEffect, ...]:
    """Every lever's effect on `base`, in the order of `candidate_levers`; those that cannot be answered are left out."""
    effects = []
    for lever in candidate_levers(base.inputs):
        after = _answer_with(base.inputs, lever.change)
        if after is not None and not (lever.change.settings[0][0] == "tp" and after.layout == base.layout):
            effects.append(LeverEffect(lever=lever, before=base, after=after))
    return (*effects, *_other_models_and_cards(base))


def _other_models_and_cards(base: Answer) -> list[LeverEffect]:
    """What is no setting of the scenario: a cache of fewer heads (not applied by a click), and the best other card."""
    effects = []
    fewer = grouped_heads(base.inputs.spec)
    if fewer is not None:
        lever = _lever(f"a model with {GROUPED_HEADS} KV heads (GQA)", Kind.DIFFERENT_MODEL)
        try:
            after = answer(replace(base.inputs, spec=fewer, catalogue=()))
        except (InputError, MissingSpec):
            after = None
        if after is not None:
            effects.append(LeverEffect(lever=lever, before=base, after=after))
    card = _best_other_card(base)
    if card is not None:
        lever = Lever(change=plan_change(card), kind=Kind.SAME_OUTPUT)
        effects.append(LeverEffect(lever=lever, before=base, after=card))
    return effects


def plan_change(plan: Answer) -> Change:
    """What makes a scenario the one of a plan on another accelerator: the card, in place of one that was typed, and its layout."""
    chosen, layout = plan.inputs.offer.accelerator, plan.layout
    settings = {
        "gpu": chosen.id,
        "gpu_json": "",
        "tp": str(layout.tp),
        "pp": str(layout.pp),
        "ep": str(layout.ep),
    }
    settings |= {"attention_dp": str(layout.attention_dp), "nodes": str(layout.nodes)}
    return Change(text=f"{chosen.name}, {layout.label}", settings=tuple(settings.items()))


def _best_other_card(base: Answer) -> Answer | None:
    """The cheapest plan of another accelerator with a price; None where there is none, or at textbook fidelity."""
    inputs = base.inputs
    others = tuple(o for o in inputs.catalogue if o.accelerator.id != inputs.offer.accelerator.id)
    if not others or inputs.scenario.fidelity == Fidelity.TEXTBOOK:
        return None
    question = replace(question_of(inputs, others), layouts=None)
    plans = search(question, top=1).plans
    return next((plan for plan in plans if plan.cost.usd_per_hour is not None), None)


def _lever(text: str, kind: Kind, **settings: str) -> Lever:
    return Lever(change=Change(text=text, settings=tuple(settings.items())), kind=kind)


def _changes_something(inputs: Inputs, lever: Lever) -> bool:
    """Whether the lever changes the scenario, into one whose formats the engine serves on the accelerator."""
    try:
        changed = apply_settings(inputs.scenario, lever.change.settings)
    except InputError:
        return False
    if changed == inputs.scenario or is_foreign(changed.quantization, changed.engine):
        return False
    return bool(format_support(replace(inputs, scenario=changed)))


def _answer_with(inputs: Inputs, change: Change) -> Answer | None:
    """The answer after a change; None where this accelerator has no number for it or the layout does not exist."""
    try:
        scenario = apply_settings(inputs.scenario, change.settings)
        offer = dict(inputs.engine_offers).get(scenario.engine, inputs.offer)
        return answer(replace(inputs, scenario=scenario, offer=offer, catalogue=()))
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
