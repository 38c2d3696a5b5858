"""Screening: every accelerator, layout, format and number of sequences at once, by bounds that no plan can beat.

The outcome is, for every configuration (engine, accelerator, layout, formats), the least number of replicas that could do
and with it the least cost, or the wall that no batch gets over. `calc.plan.search` then asks the full model, the best
bound first, and stops where no bound is left that beats what was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc import textbook
from calc.engine import LLAMA_CPP_ENGINES, Engine
from calc.errors import MissingSpec
from calc.expected import MOST_SEQUENCES, tokens_of_pass
from calc.format_support import formats_support, served_formats, weight_scheme
from calc.layout import Layout
from calc.memory.kv import kv_copies, sequence_bytes
from calc.operators import Operators, compile_operators
from calc.plan.limits import NO_WALL, WALLS, limits_missed, objectives_of
from calc.plan.pace import Pace, pace_of
from calc.plan.space import AS_THE_ENGINE_DOES, Question, Scheduling, layouts_of, placed
from calc.plan.stacked import Stacked, stacks_of
from calc.quantization import stored_bytes, weight_bytes
from calc.replica_model import tuned
from calc.result import Offer
from calc.scenario import Fidelity, Scenario
from calc.sizing import users_with_headroom
from calc.verdict import Wall

Array = NDArray[np.float64]
Places = NDArray[np.intp]

POINTS = 40
SLACK = 1.01  # the fixed point of a serving point stops within 1%
NOT_SERVED = "formats or engine not served on the accelerator"
UNPUBLISHED = "a number that the question needs is not published"
# The largest share of the runtime's total that an engine gives to weights and cache (vLLM 0.92 by default since 0.19);
# the other engines count from what is free, so that all of it is the bound.
MOST_OF_MEMORY = {Engine.VLLM: 0.92}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One engine, accelerator, layout and pair of formats: what the full model can be asked about."""

    engine: str
    offer: Offer
    layout: Layout
    quantization: str
    kv_dtype: str
    scheduling: Scheduling = AS_THE_ENGINE_DOES

    def scenario(self, given: Scenario) -> Scenario:
        """The given scenario in this configuration."""
        layout = self.layout
        return replace(
            self.scheduling.scenario(given).on(self.offer.accelerator.id),
            engine=self.engine,
            quantization=self.quantization,
            kv_dtype=self.kv_dtype,
            tp=layout.tp,
            pp=layout.pp,
            dp=layout.dp,
            ep=layout.ep,
            attention_dp=layout.attention_dp,
            nodes=layout.nodes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One layout with one pair of formats under one engine, and the offers that take it; `scenario`: the question's so scheduled."""

    engine: str
    layout: Layout
    quantization: str
    kv_dtype: str
    scheduling: Scheduling
    scenario: Scenario
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The least that configurations can cost, one entry each.

    `objective` (lower is better), replicas, GPUs, and the replicas' worth of work (`busy`). `wall`: what no batch gets
    over, an index into `WALLS`; `short_by`: by how much, relative to what is there or allowed.
    """

    replicas: Array
    gpus: Array
    busy: Array
    objective: Array
    wall: Places
    short_by: Array


@dataclass(frozen=True, kw_only=True)
class Screened:
    """Every configuration with its bound, how many candidates were looked at, and what was never a candidate and why.

    `group`, `place`: of each configuration, which group and which of the group's offers.
    """

    groups: tuple[Group, ...]
    group: Places
    place: Places
    bounds: Bounds
    candidates: int
    never: tuple[tuple[str, int], ...]

    def configuration(self, index: int) -> Configuration:
        """One configuration by its place in the arrays."""
        group = self.groups[int(self.group[index])]
        return Configuration(
            engine=group.engine,
            offer=group.offers[int(self.place[index])],
            layout=group.layout,
            quantization=group.quantization,
            kv_dtype=group.kv_dtype,
            scheduling=group.scheduling,
        )

    @cached_property
    def accelerators(self) -> tuple[str, ...]:
        """The accelerator's id of each configuration."""
        ids = [[offer.accelerator.id for offer in group.offers] for group in self.groups]
        pairs = zip(self.group.tolist(), self.place.tolist(), strict=True)
        return tuple(ids[group][place] for group, place in pairs)

    @property
    def possible(self) -> NDArray[np.bool_]:
        return np.asarray(self.bounds.wall == NO_WALL)


def screen(question: Question) -> Screened:
    """Bounds of everything that the question lets through."""
    never: Counter[str] = Counter()
    groups: list[Group] = []
    which: list[Places] = []
    where: list[Places] = []
    bounds: list[Bounds] = []
    known: dict[tuple[object, ...], Any] = {}
    stacks: dict[tuple[object, ...], tuple[tuple[Places, Stacked], ...]] = {}
    compiled: dict[tuple[object, ...], Operators] = {}
    for group in _groups(question, never):
        operators = _operators(question, group, compiled)
        ids = tuple(offer.accelerator.id for offer in group.offers)
        batching = group.scheduling
        ranks = group.layout.attention_dp  # they part an engine's default budget
        key = (
            *(group.engine, batching.max_batched_tokens, batching.chunked_prefill, ranks),
            *(ids, operators.formats),
        )
        if key not in stacks:
            fidelity = Fidelity(question.inputs.scenario.fidelity)
            stacks[key] = stacks_of(_tuned(group), fidelity, operators.formats, known)
        for places, stacked in stacks[key]:
            bounds.append(_bounds(question, group, operators, stacked))
            which.append(np.full(len(places), len(groups)))
            where.append(places)
        groups.append(group)
    return Screened(
        groups=tuple(groups),
        group=_joined(which, int),
        place=_joined(where, int),
        bounds=Bounds(
            **{
                f.name: _joined([getattr(b, f.name) for b in bounds])
                for f in fields(Bounds)
                if f.name != "wall"
            },
            wall=_joined([b.wall for b in bounds], int),
        ),
        candidates=POINTS * sum(len(b.objective) for b in bounds),
        never=tuple(never.most_common()),
    )


def _joined(parts: list[Any], kind: type = float) -> Any:
    return np.concatenate(parts).astype(kind) if parts else np.zeros(0, dtype=kind)


def _groups(question: Question, never: Counter[str]) -> Iterator[Group]:
    """Layouts and formats with the offers that they go with; what does not is counted."""
    spec = question.inputs.spec
    scheduled = [(one, one.scenario(question.inputs.scenario)) for one in question.schedulings]
    for engine, offers in question.offers.items():
        timed = [offer for offer in offers if _has_rates(offer)]
        never[UNPUBLISHED] += len(offers) - len(timed)
        chosen = question.layouts or layouts_of(spec, engine, most=question.largest_replica)
        places = _placements(question, chosen, timed)
        formats = {
            name: served_formats(spec, name)
            for name in question.weight_formats
            if not is_foreign(name, engine) or name == question.inputs.scenario.quantization
        }
        for quantization, kv_dtype in product(formats, question.kv_formats):
            served = [
                bool(formats_support(formats[quantization], kv_dtype, engine, offer.accelerator))
                for offer in timed
            ]
            never[NOT_SERVED] += served.count(False)
            for (layout, those), (scheduling, scenario) in product(places.items(), scheduled):
                offered = tuple(timed[place] for place in those if served[place])
                if offered:
                    yield Group(
                        engine=engine,
                        layout=layout,
                        quantization=quantization,
                        kv_dtype=kv_dtype,
                        scheduling=scheduling,
                        scenario=scenario,
                        offers=offered,
                    )


def _tuned(group: Group) -> list[Offer]:
    """The group's offers with profiles that know the token budget, and whether prompts are chunked."""
    return [
        offer
        if offer.profile is None
        else replace(offer, profile=tuned(offer.profile, group.scenario, group.layout))
        for offer in group.offers
    ]


def is_foreign(quantization: str, engine: str) -> bool:
    """A GGUF mixture under another engine than llama.cpp: never suggested, but answered where a person chose it."""
    return (
        quantization != "auto" and weight_scheme(quantization) == "gguf" and engine not in LLAMA_CPP_ENGINES
    )


def _placements(
    question: Question, layouts: tuple[Layout, ...], offers: list[Offer]
) -> dict[Layout, list[int]]:
    """Each layout, with the nodes that it takes, and which offers take it so. A chosen layout goes anywhere."""
    found: dict[Layout, list[int]] = {}
    for layout in layouts:
        for place, offer in enumerate(offers):
            there = layout if question.layouts else placed(layout, offer.accelerator)
            if there is not None:
                found.setdefault(there, []).append(place)
    return found


def _has_rates(offer: Offer) -> bool:
    """Whether the accelerator's 16-bit rate and memory are known, and a profile is there."""
    try:
        known = offer.accelerator.flop_per_s_16bit.flop_per_s * offer.accelerator.cuda_memory.best > 0
    except MissingSpec:
        return False
    return known and offer.profile is not None


def _operators(question: Question, group: Group, compiled: dict[tuple[object, ...], Operators]) -> Operators:
    """The group's operators, compiled once: no scheduling changes them, and nodes only where experts are spread over them."""
    scenario = question.inputs.scenario
    kv_format = scenario.kv_format if group.kv_dtype == scenario.kv_dtype else group.kv_dtype
    layout = group.layout if group.layout.ep > 1 else replace(group.layout, nodes=1)
    key = (layout, group.quantization, kv_format)
    if key not in compiled:
        compiled[key] = compile_operators(
            question.inputs.spec,
            layout,
            quantization=None if group.quantization == "auto" else group.quantization,
            kv_dtype="bf16" if kv_format == "auto" else kv_format,
        )
    return compiled[key]


def _bounds(question: Question, group: Group, operators: Operators, stacked: Stacked) -> Bounds:
    """One group on the accelerators of one stack."""
    scenario, layout = group.scenario, group.layout
    prompt = scenario.input_tokens
    schedulers = layout.schedulers
    fit, short = _sequences_that_fit(question, group, stacked)
    most = float(min(scenario.max_seqs or MOST_SEQUENCES, MOST_SEQUENCES))
    top = max(1.0, min(float(np.max(fit)), most) / schedulers)
    pace = pace_of(
        operators,
        stacked,
        sequences=np.geomspace(1.0 / layout.pp, max(top, 2.0), POINTS),
        input_tokens=prompt,
        output_tokens=scenario.output_tokens,
        prefix_tokens=min(prompt * scenario.workload.prefix_share, prompt - 1.0),
        schedulers=schedulers,
        nodes=layout.nodes,
        gpus=layout.gpus_per_replica,
        drafts=scenario.draft_tokens,
        tokens_per_pass=tokens_of_pass(scenario),
    )
    busy, needed = _replicas(scenario, pace, fit=fit, most=most)
    walls, missed = _walls(scenario, pace, fit=fit, short=short)
    bought = question.limits.replicas_to_buy(busy, needed, layout, stacked.accelerators)
    gpus = question.limits.gpus_of(bought, layout, stacked.accelerators)
    beyond, excess = limits_missed(question, stacked.offers, gpus)
    free = walls == NO_WALL
    used = busy * layout.gpus_per_replica
    asked = (scenario.workload.concurrency or 0) * scenario.workload.peak_factor
    if asked:  # users who wait are served faster, not more of them: GPU-seconds of a request
        used = gpus * pace.e2e_s[0] / asked
    return Bounds(
        replicas=bought,
        gpus=gpus,
        busy=busy,
        objective=objectives_of(question.objective, stacked.offers, gpus, used),
        wall=np.where(free, beyond, walls),
        short_by=np.where(free, excess, missed),
    )


def _sequences_that_fit(question: Question, group: Group, stacked: Stacked) -> tuple[Array, Array]:
    """(most sequences whose cache can fit a replica, bytes that the weights miss by relative to the memory), by accelerator."""
    inputs, scenario, layout = question.inputs, question.inputs.scenario, group.layout
    gpus = layout.gpus_per_replica
    counted = (
        stored_bytes(inputs.spec)
        if group.quantization == "auto"
        else weight_bytes(inputs.spec, group.quantization)
    )
    totals = stacked.most_memory_bytes
    offloads = group.engine in LLAMA_CPP_ENGINES
    share = scenario.memory_utilization or MOST_OF_MEMORY.get(Engine(group.engine), 1.0)
    room = np.asarray(
        textbook.cache_bytes(memory_bytes=totals * share, weight_bytes=counted.stored / gpus), dtype=float
    )
    if offloads:  # layers that do not fit stay on the host
        room = totals
    if scenario.kv_bytes_per_gpu is not None:
        room = np.full_like(totals, scenario.kv_bytes_per_gpu)
    kept = max(1, round(scenario.input_tokens + scenario.output_tokens))
    kv_format = "bf16" if group.kv_dtype == "auto" else group.kv_dtype
    per_sequence = sequence_bytes(inputs.spec, kept, kv_format)
    copies = kv_copies(inputs.spec, layout.attention_tp)
    fit = np.where(room > 0, np.maximum(room, 0.0) * gpus / copies / max(per_sequence, 1), 0.0)
    return fit, np.maximum(-room, 0.0) / totals


def _kept(scenario: Scenario, pace: Pace) -> NDArray[np.bool_]:
    """Points at which every target can be kept."""
    slo = scenario.slo
    kept = np.ones(pace.tpot_s.shape, dtype=bool)
    for limit, reached in ((slo.tpot_s, pace.tpot_s), (slo.ttft_s, pace.ttft_s), (slo.e2e_s, pace.e2e_s)):
        if limit is not None:
            kept &= reached <= limit * SLACK
    return kept


def _replicas(scenario: Scenario, pace: Pace, *, fit: Array, most: float) -> tuple[Array, Array]:
    """(least replicas' worth of work, least replicas) for each accelerator."""
    slo, workload = scenario.slo, scenario.workload
    inside = _kept(scenario, pace) & (pace.sequences[:, None] <= np.minimum(fit, most))
    last = np.where(inside.any(axis=0), len(inside) - 1 - np.argmax(inside[::-1], axis=0), 0)
    upto = np.minimum(last + 1, len(inside) - 1)  # between two points the bound of the next one holds
    columns = np.arange(inside.shape[1])
    if workload.rate_per_s is not None:
        reachable = np.maximum.accumulate(pace.requests_per_s, axis=0)[upto, columns] * SLACK
        busy = workload.rate_per_s * workload.peak_factor / reachable
        return busy, np.maximum(1.0, np.ceil(busy * (1.0 + scenario.headroom) - 1e-9))
    asked = (workload.concurrency or 0) * workload.peak_factor
    held = np.full_like(fit, inf)
    if (
        slo.ttft_s is not None
    ):  # of B users n decode and the others wait for a first token, no longer than the target
        decoding_s = pace.tpot_s[upto, columns] * scenario.output_tokens
        held = pace.sequences[upto] * (1.0 + slo.ttft_s / decoding_s) * SLACK
    batch = np.maximum(1.0, np.minimum(np.minimum(held, fit), most))
    users = users_with_headroom(asked, scenario.headroom)
    return asked / batch, np.maximum(1.0, np.ceil(users / batch - 1e-9))


def _walls(scenario: Scenario, pace: Pace, *, fit: Array, short: Array) -> tuple[Places, Array]:
    """What stops each accelerator that no number of sequences makes work, and by how much: memory before latency."""
    slo = scenario.slo
    walls, missed = np.full(len(fit), NO_WALL), np.zeros(len(fit))
    for name, limit, reached in (
        (Wall.TTFT, slo.ttft_s, pace.ttft_s[0]),
        (Wall.E2E, slo.e2e_s, pace.e2e_s[0]),
        (Wall.TPOT, slo.tpot_s, pace.tpot_s[0]),
    ):
        if limit is not None:
            over = reached > limit * SLACK
            walls = np.where(over, WALLS.index(name), walls)
            missed = np.where(over, reached / limit - 1.0, missed)
    for name, over, by in (
        (Wall.KV_MEMORY, fit < 1.0, 1.0 - fit),
        (Wall.WEIGHT_MEMORY, short > 0, short),
    ):
        walls, missed = np.where(over, WALLS.index(name), walls), np.where(over, by, missed)
    return walls, missed
