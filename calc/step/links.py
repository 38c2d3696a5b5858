"""Seconds of the collectives of a forward pass, from a device profile's curves or from the link's datasheet rate."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calc.accelerator import Accelerator
from calc.collectives import LinkCurve, curve_for
from calc.layout import Layout
from calc.operators import KINDS, Kind, Operators, OperatorTable
from calc.profile import Profile
from calc.provenance import Provenance
from calc.step.rates import bus_bytes_per_s, link_bytes_per_s
from calc.step.seconds import LinkSeconds
from calc.units import GB

Array = NDArray[np.float64]

# Between nodes: one 400 Gb/s port per GPU. DeepEP's low-latency kernels move 7.3 MB to 8 to 256 ranks in 163 to 194 us
# (README of deepseek-ai/DeepEP, H800 with ConnectX-7): about 45 GB/s behind some 10 us.
NODE_LINK_BYTES_PER_S: Final = 50.0 * GB
NODE_CURVE: Final = LinkCurve(
    ranks=8,
    alpha_s=10e-6,
    beta_of_link=0.9,
    half_bytes=0.0,
    provenance=Provenance.FITTED,
    source="DeepEP README, low-latency dispatch",
)

# Times that a message between cards without links of their own takes longer than on the host of the kernel tables (RTX PRO
# 6000, peer-to-peer through one switch). The geometric mean of four public hosts, each against that curve at its own PCIe
# rate: that host 1.0; an L40S host without working peer-to-peer 2.7 (its 2, 4 and 8 GPUs: 0.97, 3.1, 6.2); eight RTX 4090 1.9
# and eight RTX A6000 0.8, from AccelMark's first tokens of a 70B model. A host may be twice as good or as bad.
PCIE_HOSTS: Final = 1.4
PCIE_SPREAD: Final = 1.2  # what that does to the range of a step, a fifth of which is messages


def node_bytes_per_s(accelerator: Accelerator) -> float:
    """One-way rate of a GPU to those of other nodes: its network port, or the bus between them where that is slower.

    A port of 400 Gb/s needs PCIe 5.0 x16; behind 4.0 x16 (an A100) it carries no more than the 32 GB/s of the slot.
    """
    return min(NODE_LINK_BYTES_PER_S, bus_bytes_per_s(accelerator))


def profile_links(
    accelerator: Accelerator,
    profile: Profile,
    *,
    nodes: int = 1,
    gpus: int | None = None,
    node_size: int | None = None,
) -> LinkSeconds:
    """Link times from the profile: measured curves inside a node, a network port between nodes.

    A replica of `gpus` spread over several nodes has so many of them in each.
    """
    inside = node_size or devices_inside(accelerator, nodes=nodes, gpus=gpus)
    factor = endpoint_factor(profile)

    known: dict[tuple[int, int], tuple[float, float, float]] = {}

    def terms(index: int, ranks: int) -> tuple[float, float, float]:
        """(start-up seconds, bytes/s, half bytes) of one kind of collective, looked up once."""
        if (index, ranks) not in known:
            curve, rate = link_of(accelerator, profile, KINDS[index], ranks, node_size=inside)
            known[index, ranks] = (
                factor * curve.alpha_s,
                curve.beta_of_link * rate / factor,
                curve.half_bytes,
            )
        return known[index, ranks]

    def seconds(table: OperatorTable, rows: NDArray[np.intp]) -> Array:
        kinds = table.operators.kind_index[rows, 0].tolist()
        ranks = table.operators.numbers["ranks"][rows, 0].tolist()
        found = np.array([terms(kind, int(n)) for kind, n in zip(kinds, ranks, strict=True)])
        alpha_s, bytes_per_s, half_bytes = found.T[:, :, None]
        size = table.message_bytes[rows]
        time = alpha_s + (size + np.sqrt(size * half_bytes)) / bytes_per_s  # as LinkCurve.seconds
        return np.asarray(np.where(size > 0, time, 0.0))

    return seconds


def endpoint_factor(profile: Profile) -> float:
    """Times that collectives take longer on a measured endpoint than its profile says; 1 where none was measured."""
    return profile.calibration.get("communication_factor")


def as_run(curve: LinkCurve, factor: float) -> LinkCurve:
    """A curve of the fastest kernels as an engine runs it, `factor` times slower at small messages.

    Start-up and the root term, which is what small and middle messages lose, are the engine's own kernel's; the rate of large
    messages is the link's, which every engine leaves to the same library. (Links of their own only; over PCIe see `link_of`.)
    """
    return replace(curve, alpha_s=factor * curve.alpha_s, half_bytes=factor**2 * curve.half_bytes)


def crosses_bus(accelerator: Accelerator, operators: Operators) -> bool:
    """Whether a pass has collectives among GPUs that no link of their own joins."""
    rows = operators.sets.links
    kinds = operators.kind_index[rows, 0].tolist()
    ranks = operators.numbers["ranks"][rows, 0].tolist()
    return any(
        KINDS[kind] is not Kind.POINT_TO_POINT and accelerator.link_among(int(count)) is None
        for kind, count in zip(kinds, ranks, strict=True)
    )


def across_hosts(layout: Layout, accelerator: Accelerator) -> Layout:
    """The layout over at least as many hosts as its GPUs fill; cards that come alone have no network between hosts."""
    inside = max(accelerator.host_devices, accelerator.linked_devices)
    nodes = ceil(layout.gpus_per_replica / inside)
    return layout if nodes <= layout.nodes or accelerator.node_size == 1 else replace(layout, nodes=nodes)


def devices_inside(accelerator: Accelerator, *, nodes: int, gpus: int | None) -> int:
    """Devices that talk without a network: those of a host or of a rack's own link; fewer where a replica is spread thinner."""
    together = max(accelerator.host_devices, accelerator.linked_devices)
    if nodes == 1 or gpus is None:
        return together if nodes == 1 else 1
    return max(1, min(together, gpus // nodes))


def link_of(
    accelerator: Accelerator,
    profile: Profile,
    kind: Kind,
    ranks: int,
    *,
    nodes: int = 1,
    gpus: int | None = None,
    node_size: int | None = None,
) -> tuple[LinkCurve, float]:
    """The curve of a collective among `ranks` GPUs as the engine runs it, and the one-way rate of the link that it refers to.

    `node_size`: devices that talk without a network, where that is known already; see `devices_inside`.
    """
    inside = node_size or devices_inside(accelerator, nodes=nodes, gpus=gpus)
    engine = profile.number("collectives.factor")
    if ranks > inside and kind is not Kind.POINT_TO_POINT:
        return as_run(NODE_CURVE, engine), node_bytes_per_s(accelerator)
    rate = link_bytes_per_s(accelerator, ranks)
    curve = _curve(profile, kind, ranks)
    if accelerator.link_among(ranks) is None:
        # Nobody measured engines apart from hosts: PCIE_HOSTS was found with the factor.
        rate /= engine * (1.0 if kind is Kind.POINT_TO_POINT else PCIE_HOSTS)
        return replace(curve, alpha_s=engine * curve.alpha_s), rate
    return as_run(curve, engine), rate


def _curve(profile: Profile, kind: Kind, ranks: int) -> LinkCurve:
    device = profile.device
    if kind is Kind.ALL_REDUCE or not device.all_gather:
        return curve_for(device.all_reduce, ranks)
    return curve_for(device.all_gather, ranks)


def datasheet_links(accelerator: Accelerator) -> LinkSeconds:
    """The bound: every message at the link's rate, no start-up."""

    def seconds(table: OperatorTable, rows: NDArray[np.intp]) -> Array:
        ranks = table.operators.numbers["ranks"][rows, 0].astype(int)
        rates = np.array([link_bytes_per_s(accelerator, int(count)) for count in ranks])
        return np.asarray(table.message_bytes[rows] / rates[:, None])

    return seconds
