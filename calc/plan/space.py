"""What a search looks through, and what a plan must keep to: layouts, formats, engines; limits and the objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calc.accelerator import Accelerator
from calc.answer import LARGEST_REPLICA
from calc.engine import LLAMA_CPP_ENGINES
from calc.errors import InputError
from calc.layout import Layout
from calc.memory.engines.sharding import check_heads
from calc.model import ModelSpec
from calc.result import Inputs, Offer
from calc.scenario import Scenario
from calc.step.links import across_hosts

Array = NDArray[np.float64]

POWERS: Final = (1, 2, 4, 8, 16, 32, 64)
AS_STORED: Final = ("auto",)
# What a search may store weights and caches in when every format is allowed: one of each family that quantisers write.
EVERY_WEIGHT_FORMAT: Final = ("auto", "fp8", "int8", "int4-g128", "nvfp4", "q8_0", "q4_k_m")
EVERY_KV_FORMAT: Final = ("auto", "fp8", "int8", "q8_0")


class Objective(StrEnum):
    """What the best plan has the least (throughput: the most) of."""

    COST = "cost"
    GPUS = "gpus"
    ENERGY = "energy"
    THROUGHPUT = "throughput"


class Spare(StrEnum):
    """What may fail at peak while the promise is kept."""

    NONE = "none"
    REPLICA = "replica"
    NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan may use: USD per hour, watts of all accelerators at their limit, devices in all and of each kind.

    `spare`: what may fail at peak while the rest keeps the promise. `whole_nodes`: devices come in whole hosts, which
    replicas then fill.
    """

    usd_per_hour: float | None = None
    power_w: float | None = None
    gpus: int | None = None
    available: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    spare: Spare = Spare.NONE
    whole_nodes: bool = False

    def __post_init__(self) -> None:
        for name in ("usd_per_hour", "power_w", "gpus"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(name, value, "a limit is a positive number")
        for gpu, count in self.available.items():
            if not isinstance(count, int) or count < 0:
                raise InputError(f"available {gpu}", count, "it must be a whole number from 0")

    def most_of(self, accelerator: Accelerator) -> float:
        """Devices of this kind that can be had."""
        kinds = self.available.get(accelerator.id, float("inf"))
        return min(kinds, self.gpus or float("inf"))

    def replicas_to_buy(
        self, busy: Array, needed: Array, layout: Layout, accelerators: Sequence[Accelerator]
    ) -> Array:
        """Replicas so that those `needed` stand, and so that the busy ones are left when the spare unit fails.

        Where devices come in whole nodes, every replica that the last node has room for is bought with it.
        """
        per_node = np.maximum(1.0, hosts_of(accelerators) // layout.gpus_per_replica)
        bought = needed
        if self.spare is not Spare.NONE:
            lost = per_node if self.spare is Spare.NODE else 1.0
            bought = np.maximum(needed, np.ceil(busy - 1e-9) + lost)
        return np.ceil(bought / per_node) * per_node if self.whole_nodes else bought

    def nodes_of(self, replicas: Array, layout: Layout, accelerators: Sequence[Accelerator]) -> Array:
        """Whole hosts that so many replicas take."""
        hosts = hosts_of(accelerators)
        gpus = layout.gpus_per_replica
        inside = np.ceil(replicas / np.maximum(1.0, hosts // gpus))
        return np.where(gpus <= hosts, inside, replicas * np.ceil(gpus / hosts))

    def gpus_of(self, replicas: Array, layout: Layout, accelerators: Sequence[Accelerator]) -> Array:
        """Devices to pay for: those of the replicas, or of the nodes that they stand in."""
        if self.whole_nodes:
            return self.nodes_of(replicas, layout, accelerators) * hosts_of(accelerators)
        return replicas * layout.gpus_per_replica


def hosts_of(accelerators: Sequence[Accelerator]) -> Array:
    """Devices of one host of each kind."""
    return np.array([float(accelerator.host_devices) for accelerator in accelerators])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How an engine is told to batch: None is its own choice. The fields are the scenario's of the same names."""

    max_batched_tokens: int | None = None
    max_seqs: int | None = None
    chunked_prefill: bool = True
    prefix_caching: bool = True
    draft_tokens: int = 0

    def scenario(self, given: Scenario) -> Scenario:
        """The given scenario scheduled so."""
        return replace(
            given,
            max_batched_tokens=self.max_batched_tokens,
            max_seqs=self.max_seqs,
            chunked_prefill=self.chunked_prefill,
            prefix_caching=self.prefix_caching,
            draft_tokens=self.draft_tokens,
        )


AS_THE_ENGINE_DOES: Final = Scheduling()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is planned: the scenario's inputs, the offers of each engine, the formats that quality allows, limits, objective.

    `weight_formats`, `kv_formats`: scenario values to try ("auto": as stored, 16 bit). `layouts` given: only those.
    `token_budgets` of a step and `batch_caps` (None: the engine's own), `chunked_prefill`, `prefix_caching` and
    `draft_tokens` are tried in the same way, each with each.
    `pools`: prefill and decode on replicas of their own are tried for each accelerator's best configuration.
    """

    inputs: Inputs
    offers: Mapping[str, tuple[Offer, ...]]
    weight_formats: tuple[str, ...] = AS_STORED
    kv_formats: tuple[str, ...] = AS_STORED
    token_budgets: tuple[int | None, ...] = (None,)
    batch_caps: tuple[int | None, ...] = (None,)
    chunked_prefill: tuple[bool, ...] = (True,)
    prefix_caching: tuple[bool, ...] = (True,)
    draft_tokens: tuple[int, ...] = (0,)
    pools: bool = False
    layouts: tuple[Layout, ...] | None = None
    largest_replica: int = LARGEST_REPLICA
    limits: Limits = field(default_factory=Limits)
    objective: Objective = Objective.COST

    def __post_init__(self) -> None:
        if not 1 <= self.largest_replica <= 1024:
            raise InputError("largest_replica", self.largest_replica, "it must be from 1 to 1,024 GPUs")

    @property
    def schedulings(self) -> tuple[Scheduling, ...]:
        """Every way of batching that is tried."""
        return tuple(
            Scheduling(
                max_batched_tokens=budget,
                max_seqs=cap,
                chunked_prefill=chunked,
                prefix_caching=caching,
                draft_tokens=drafts,
            )
            for budget, cap, chunked, caching, drafts in product(
                self.token_budgets,
                self.batch_caps,
                self.chunked_prefill,
                self.prefix_caching,
                self.draft_tokens,
            )
        )


def searches_layouts(scenario: Scenario) -> bool:
    """Whether the scenario leaves the layout open, so that a search tries all of them."""
    return not (scenario.tp or scenario.pp > 1 or scenario.ep or scenario.attention_dp > 1)


def question_of(inputs: Inputs, offers: tuple[Offer, ...] | None = None) -> Question:
    """The scenario as it stands on offers of its own engine: its formats, and its layout where one was chosen."""
    scenario = inputs.scenario
    return Question(
        inputs=inputs,
        offers={scenario.engine: inputs.catalogue if offers is None else offers},
        weight_formats=(scenario.quantization,),
        kv_formats=(scenario.kv_dtype,),
        token_budgets=(scenario.max_batched_tokens,),
        batch_caps=(scenario.max_seqs,),
        chunked_prefill=(scenario.chunked_prefill,),
        prefix_caching=(scenario.prefix_caching,),
        draft_tokens=(scenario.draft_tokens,),
        layouts=None if searches_layouts(scenario) else (scenario.layout,),
    )


def layouts_of(spec: ModelSpec, engine: str, *, most: int = LARGEST_REPLICA) -> tuple[Layout, ...]:
    """Every layout of one replica worth asking, up to `most` GPUs.

    Tensor x pipeline degrees in powers of two, and for mixtures of experts expert parallelism with attention split or
    repeated. Degrees that do not divide the heads are left out.
    """
    return tuple(_shareable(spec, _shapes(spec, engine, most)))


def _shapes(spec: ModelSpec, engine: str, most: int) -> Iterator[Layout]:
    layers = spec.decoder.n_layers if spec.decoder is not None else 1
    stages = POWERS if engine not in LLAMA_CPP_ENGINES else (1,)
    for tp in POWERS:
        for pp in stages:
            if tp * pp <= most and pp <= layers:
                yield Layout(tp=tp, pp=pp)
    if spec.has_experts and engine not in LLAMA_CPP_ENGINES:
        for tp in POWERS[1:]:
            if tp <= most:
                yield Layout(tp=tp, ep=tp)
                yield Layout(tp=tp, ep=tp, attention_dp=tp)


def _shareable(spec: ModelSpec, layouts: Iterator[Layout]) -> Iterator[Layout]:
    for layout in layouts:
        try:
            check_heads(spec, layout)
        except InputError:
            continue
        yield layout


def placed(layout: Layout, accelerator: Accelerator) -> Layout | None:
    """The layout with the nodes that it takes of this accelerator; None where it does not go.

    Tensor parallelism stays where devices talk without a network; pipeline stages and experts may cross it. Cards that
    come alone have no network of their own.
    """
    gpus, host = layout.gpus_per_replica, accelerator.host_devices
    inside = max(host, accelerator.linked_devices)
    if gpus > host and accelerator.node_size == 1:
        return None
    if layout.tp > inside and layout.ep <= 1:
        return None
    return across_hosts(layout, accelerator)
