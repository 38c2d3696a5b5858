"""MIG slices: a part of a GPU with its own memory, bandwidth and SMs, loaded as "h100-sxm5-80gb:3g.40gb".

A slice has so many eighths (quarters on smaller parts) of the memory, and with them of the bandwidth and the L2, and
so many sevenths (quarters) of the SMs. Slices have no NVLink and no peer copies, so each one serves alone.

Source: NVIDIA Multi-Instance GPU user guide, tables of supported profiles (driver 580), read 2026-11-29, for A30,
A100, H100, H200, B200 and RTX PRO 6000; B300 as a cloud's service documents it; the names on 94 and 96 GB parts are
recalled. SM counts: `nvidia-smi mig -lgip` on A100 and H100, and one device query on B200.
Media-engine variants (+me, -me, +gfx) compute alike and are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from calc.accelerator import Accelerator, Confirmation, Rate
from calc.errors import InputError

# What nvidia-smi shows for a slice, as a share of its part of the whole card: 4864 of 5120 MiB (1g.5gb) to 20224 of
# 20480 (3g.20gb). The runtime's total is up to 2% less again.
SLICE_MEMORY_SHARES = (0.93, 0.985)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One way to cut a slice: its shares of memory (and bandwidth) and of SMs, and how many fit on a card."""

    name: str
    memory_share: float
    sm_share: float
    instances: int
    sm_count: int | None = None  # where a driver's output shows it


@dataclass(frozen=True, slots=True)
class _Cut:
    """A profile without its memory figure: `{}g.{}gb` is named after the card's own size."""

    slices: int
    memory_parts: int
    instances: int


_SEVENTHS = (_Cut(1, 1, 7), _Cut(1, 2, 4), _Cut(2, 2, 3), _Cut(3, 4, 2), _Cut(4, 4, 1), _Cut(7, 8, 1))
_QUARTERS = (_Cut(1, 1, 4), _Cut(2, 2, 2), _Cut(4, 4, 1))

# Card -> the gigabytes in its profiles' names, smallest first (1 part, 2 parts, 4 parts, 8 parts).
_EIGHTHS_NAMES: Mapping[str, tuple[int, int, int, int]] = {
    "a100-pcie-40gb": (5, 10, 20, 40),
    "a100-sxm4-40gb": (5, 10, 20, 40),
    "a100-pcie-80gb": (10, 20, 40, 80),
    "a100-sxm4-80gb": (10, 20, 40, 80),
    "a800-pcie-80gb": (10, 20, 40, 80),
    "a800-sxm4-80gb": (10, 20, 40, 80),
    "h100-pcie-80gb": (10, 20, 40, 80),
    "h100-sxm5-80gb": (10, 20, 40, 80),
    "h800-sxm5-80gb": (10, 20, 40, 80),
    "h100-nvl-94gb": (12, 24, 47, 94),
    "gh200-96gb": (12, 24, 48, 96),
    "h20-sxm-96gb": (12, 24, 48, 96),
    "h200-sxm-141gb": (18, 35, 71, 141),
    "h200-nvl-141gb": (18, 35, 71, 141),
    "b200-sxm-180gb": (23, 45, 90, 180),
    "b300-sxm-288gb": (34, 67, 135, 269),
}
_QUARTERS_NAMES: Mapping[str, tuple[int, int, int]] = {
    "a30": (6, 12, 24),
    "rtx-pro-6000-blackwell-ws": (24, 48, 96),
    "rtx-pro-6000-blackwell-maxq": (24, 48, 96),
    "rtx-pro-6000-blackwell-server": (24, 48, 96),
}
# SMs of a profile where output of the driver shows them: (card's architecture, slices, memory parts) -> SMs.
_A100_SMS = {(1, 1): 14, (1, 2): 14, (2, 2): 28, (3, 4): 42, (4, 4): 56, (7, 8): 98}
_H100_SXM_SMS = {(1, 1): 16, (1, 2): 26, (2, 2): 32, (3, 4): 60, (4, 4): 64, (7, 8): 132}
_SMS: Mapping[str, Mapping[tuple[int, int], int]] = {
    **dict.fromkeys(("a100-pcie-40gb", "a100-sxm4-40gb", "a100-pcie-80gb", "a100-sxm4-80gb"), _A100_SMS),
    **dict.fromkeys(("a800-pcie-80gb", "a800-sxm4-80gb"), _A100_SMS),
    **dict.fromkeys(("h100-sxm5-80gb", "h800-sxm5-80gb"), _H100_SXM_SMS),
    "b200-sxm-180gb": {(1, 1): 18},
}


def mig_profiles(part_id: str) -> tuple[MigProfile, ...]:
    """The profiles of a card, from the smallest slice; empty for a card without MIG."""
    if part_id in _EIGHTHS_NAMES:
        return _named(part_id, _SEVENTHS, dict(zip((1, 2, 4, 8), _EIGHTHS_NAMES[part_id], strict=True)), 8, 7)
    if part_id in _QUARTERS_NAMES:
        return _named(part_id, _QUARTERS, dict(zip((1, 2, 4), _QUARTERS_NAMES[part_id], strict=True)), 4, 4)
    return ()


def _named(
    part_id: str, cuts: tuple[_Cut, ...], gigabytes: Mapping[int, int], memory_parts: int, slices: int
) -> tuple[MigProfile, ...]:
    return tuple(
        MigProfile(
            name=f"{cut.slices}g.{gigabytes[cut.memory_parts]}gb",
            memory_share=cut.memory_parts / memory_parts,
            sm_share=cut.slices / slices,
            instances=cut.instances,
            sm_count=_SMS.get(part_id, {}).get((cut.slices, cut.memory_parts)),
        )
        for cut in cuts
    )


def mig_slice(whole: Accelerator, profile_name: str) -> Accelerator:
    """One slice of a card as an accelerator of its own.

    Rates scale with the SMs, bandwidth and L2 with the memory. Raises `InputError` for a card without MIG, or a profile
    that the card does not offer. Ignores that a small slice's SMs may not be enough to draw its whole bandwidth.
    """
    profiles = {profile.name: profile for profile in mig_profiles(whole.id)}
    profile = profiles.get(profile_name.strip().lower())
    if profile is None:
        allowed = f"its MIG profiles are {', '.join(profiles)}" if profiles else "it has no MIG profiles"
        raise InputError("accelerator", f"{whole.id}:{profile_name}", f"{whole.name}: {allowed}")
    share = profile.memory_share
    sm_share = profile.sm_share
    if profile.sm_count is not None and whole.sm_count:
        sm_share = profile.sm_count / whole.sm_count
    part_bytes = share * (whole.driver_memory_bytes or 0)
    low, high = SLICE_MEMORY_SHARES
    return replace(
        whole,
        id=f"{whole.id}:{profile.name}",
        name=f"{whole.name}, MIG {profile.name}",
        memory_label_bytes=share * whole.memory_label_bytes if whole.memory_label_bytes else None,
        driver_memory_bytes=int(part_bytes),
        cuda_memory_bytes=(int(low * part_bytes), int(high * part_bytes)),
        bandwidth_bytes_per_s=share * whole.bandwidth_bytes_per_s,
        bandwidth_range_bytes_per_s=None,
        rates=_scaled(whole.rates, sm_share),
        short_accumulate_rates=_scaled(whole.short_accumulate_rates, sm_share),
        l2_bytes=share * whole.l2_bytes if whole.l2_bytes else None,
        sm_count=profile.sm_count or (int(sm_share * whole.sm_count) if whole.sm_count else None),
        form_factor="slice",
        link_bytes_per_s=None,
        link_kind="",
        link_topology="",
        link_to_one_peer_bytes_per_s=None,
        link_domain_size=None,
        node_size=1,
        power_w=None,
        confirmation=Confirmation.VENDOR,
        confirmed=f"Shares from the MIG user guide; the whole card: {whole.confirmed}",
        notes=f"{profile.instances} such slices fit on a card; no NVLink and no peer copies between slices.",
    )


def _scaled(rates: Mapping[str, Rate], share: float) -> Mapping[str, Rate]:
    return MappingProxyType(
        {
            fmt: replace(
                rate,
                flop_per_s=rate.flop_per_s * share,
                sustained_flop_per_s=rate.sustained_flop_per_s * share if rate.sustained_flop_per_s else None,
            )
            for fmt, rate in rates.items()
        }
    )
