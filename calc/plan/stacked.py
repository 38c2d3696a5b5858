"""Accelerators side by side: what each reaches with one engine, as arrays with the accelerator as the last axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from calc.accelerator import Accelerator
from calc.operators import KINDS, Kind
from calc.profile import Profile, Schedule
from calc.result import Offer
from calc.scenario import Fidelity
from calc.step.links import devices_inside, endpoint_factor, link_of
from calc.step.rates import RateTable, datasheet_rates, rate_table

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTerms:
    """Of one collective on each accelerator: start-up seconds, bytes/s, and the message size that halves the rate."""

    alpha_s: Array
    bytes_per_s: Array
    half_bytes: Array

    def seconds(self, message_bytes: Array) -> Array:
        """Time of one call of each message on each accelerator, (messages, accelerators); as `LinkCurve.seconds`."""
        size = message_bytes[:, None]
        time = self.alpha_s + (size + np.sqrt(size * self.half_bytes)) / self.bytes_per_s
        return np.asarray(np.where(size > 0, time, 0.0))


@dataclass(frozen=True)
class Stacked:
    """Offers of one engine and schedule, at one fidelity, and the formats that their rates are wanted for.

    `known`: what was already worked out about single accelerators, shared by stacks of the same search.
    """

    offers: tuple[Offer, ...]
    fidelity: Fidelity
    formats: tuple[str, ...]
    known: dict[tuple[object, ...], Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def profiles(self) -> tuple[Profile, ...]:
        return tuple(offer.profile for offer in self.offers if offer.profile is not None)

    @property
    def accelerators(self) -> tuple[Accelerator, ...]:
        return tuple(offer.accelerator for offer in self.offers)

    @cached_property
    def rates(self) -> RateTable:
        """Rates of every kind and format, with the accelerator as the first axis."""
        return RateTable.stacked([self._table(offer) for offer in self.offers])

    def _table(self, offer: Offer) -> RateTable:
        engine = offer.profile.engine.engine if offer.profile is not None else ""
        key = ("rates", engine, offer.accelerator.id, self.formats)
        if key not in self.known:
            if self.fidelity == Fidelity.ROOFLINE or offer.profile is None:
                self.known[key] = datasheet_rates(self.formats, offer.accelerator)
            else:
                self.known[key] = rate_table(self.formats, offer.accelerator, offer.profile)
        return cast(RateTable, self.known[key])

    def number(self, name: str) -> Array:
        """One constant of every profile."""
        key = ("number", name, self._ids)
        if key not in self.known:
            self.known[key] = np.array([profile.number(name) for profile in self.profiles])
        return cast(Array, self.known[key])

    @cached_property
    def _ids(self) -> tuple[str, ...]:
        return tuple(
            f"{p.engine.engine} {o.accelerator.id}" for o, p in zip(self.offers, self.profiles, strict=True)
        )

    @cached_property
    def most_memory_bytes(self) -> Array:
        """What the runtime of each accelerator can hand out at most."""
        key = ("memory", self._ids)
        if key not in self.known:
            self.known[key] = np.array([float(a.cuda_memory.high) for a in self.accelerators])
        return cast(Array, self.known[key])

    def scalar(self, name: str) -> Array:
        """One calibration scalar of every profile; neutral at roofline fidelity, which takes none."""
        if self.fidelity == Fidelity.ROOFLINE:
            return np.full(len(self.offers), 1.0 if name.endswith("factor") else 0.0)
        return np.array([profile.calibration.get(name) for profile in self.profiles])

    @cached_property
    def share(self) -> Array:
        return self.number("prefill.share")

    @cached_property
    def first_token(self) -> tuple[Array, Array, Array]:
        """(server seconds, decode steps waited, times the prefill) of a first token on each accelerator."""
        if self.fidelity == Fidelity.ROOFLINE:
            return np.zeros(len(self.offers)), np.zeros(len(self.offers)), np.ones(len(self.offers))
        server = self.number("ttft.server_s") + self.scalar("ttft_s")
        return server, self.number("ttft.steps"), self.number("ttft.prefill")

    @property
    def chunk_tokens(self) -> float:
        return float(self.profiles[0].engine.chunk_tokens)

    @property
    def mixes(self) -> bool:
        """Whether prompts ride in decode steps."""
        return self.profiles[0].engine.schedule is Schedule.MIXED

    def links(self, kind: Kind, ranks: int, *, nodes: int, gpus: int) -> LinkTerms:
        """The collective on every accelerator; free at roofline fidelity, whose bound needs no link."""
        if self.fidelity == Fidelity.ROOFLINE:
            none = np.zeros(len(self.offers))
            return LinkTerms(alpha_s=none, bytes_per_s=none + inf, half_bytes=none)
        key = ("links", self._ids, kind, ranks, nodes, gpus)
        if key not in self.known:
            self.known[key] = self._links(kind, ranks, nodes=nodes, gpus=gpus)
        return cast(LinkTerms, self.known[key])

    def _links(self, kind: Kind, ranks: int, *, nodes: int, gpus: int) -> LinkTerms:
        factor = np.array([endpoint_factor(profile) for profile in self.profiles])
        found = np.array(
            [
                self._link(offer, profile, kind, ranks, nodes=nodes, gpus=gpus)
                for offer, profile in zip(self.offers, self.profiles, strict=True)
            ]
        ).T
        return LinkTerms(alpha_s=factor * found[0], bytes_per_s=found[1] / factor, half_bytes=found[2])

    def _link(
        self, offer: Offer, profile: Profile, kind: Kind, ranks: int, *, nodes: int, gpus: int
    ) -> tuple[float, float, float]:
        """(start-up seconds, bytes/s, half bytes) of one collective on one accelerator."""
        inside = devices_inside(offer.accelerator, nodes=nodes, gpus=gpus)
        key = ("link", profile.engine.engine, offer.accelerator.id, kind, ranks, inside)
        if key not in self.known:
            curve, rate = link_of(offer.accelerator, profile, kind, ranks, node_size=inside)
            self.known[key] = (curve.alpha_s, curve.beta_of_link * rate, curve.half_bytes)
        return cast("tuple[float, float, float]", self.known[key])


def stacks_of(
    offers: Sequence[Offer],
    fidelity: Fidelity,
    formats: tuple[str, ...],
    known: dict[tuple[object, ...], Any],
) -> tuple[tuple[NDArray[np.intp], Stacked], ...]:
    """The offers in groups that one engine schedules alike, each with the places of its offers in the list."""
    places: dict[tuple[object, ...], list[int]] = {}
    for place, offer in enumerate(offers):
        if offer.profile is not None:
            engine = offer.profile.engine
            key = (engine.engine, engine.schedule, engine.chunk_tokens, offer.profile.exponent)
            places.setdefault(key, []).append(place)
    return tuple(
        (
            np.array(found, dtype=np.intp),
            Stacked(
                offers=tuple(offers[place] for place in found),
                fidelity=fidelity,
                formats=formats,
                known=known,
            ),
        )
        for found in places.values()
    )


FIRST_LINK = KINDS.index(Kind.ALL_REDUCE)
