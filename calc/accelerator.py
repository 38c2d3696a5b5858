"""What an accelerator is: `Accelerator`, with dense rates, two memory totals, links, and where each number is from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from calc.errors import InputError, MissingSpec
from calc.provenance import Estimate, Provenance
from calc.units import GIB, MIB

# An NVIDIA card whose CUDA total was never seen: the driver's total less this much (notes of public start-up logs).
CUDA_RESERVE_BYTES = (0.3 * GIB, 0.5 * GIB, 0.9 * GIB)  # low, best, high


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A peak compute rate in FLOP/s (OP/s for integers), dense, with FP32 (INT32) accumulation."""

    flop_per_s: float
    provenance: Provenance = Provenance.DATASHEET
    range_factor: float = 1.0  # an assumed rate is known only up to this factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device as an engine sees it (a die of a package where the driver shows two).

    `rates` by compute format: fp32, tf32, fp16, bf16, fp8, int8, fp4, int4. Bandwidths in bytes/s (decimal vendors'
    figures), `link_bytes_per_s` one way, all links of the device together.
    """

    id: str
    vendor: str
    name: str
    arch: str
    memory_label_bytes: float
    driver_memory_bytes: int | None  # what nvidia-smi or its kin reports
    cuda_memory_bytes: tuple[int, int] | None  # what the runtime totals: (lowest, highest) seen
    bandwidth_bytes_per_s: float
    rates: Mapping[str, Rate] = field(default_factory=lambda: MappingProxyType({}))
    compute_capability: str | None = None
    form_factor: str = ""
    year: int | None = None
    memory_type: str = ""
    l2_bytes: float | None = None
    sm_count: int | None = None
    clock_hz: float | None = None
    link_bytes_per_s: float | None = None
    link_kind: str = ""  # "NVLink 4", "xGMI", "PCIe gen4 x16" ...
    pcie: str = ""
    node_size: int = 1
    power_w: float | None = None
    source_url: str = ""
    source_date: str = ""
    confirmed: str = ""  # how well the record is confirmed, in words
    notes: str = ""

    def __post_init__(self) -> None:
        if self.bandwidth_bytes_per_s <= 0:
            raise InputError("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, "it must be positive")
        if self.memory_label_bytes <= 0:
            raise InputError("memory_label_bytes", self.memory_label_bytes, "it must be positive")

    def rate(self, compute_format: str) -> Rate:
        """The rate in a compute format, or `MissingSpec` naming the device and the format."""
        found = self.rates.get(compute_format)
        if found is None:
            raise MissingSpec(
                f"{self.name} has no published {compute_format} rate.",
                next_step=f"Formats with a rate: {', '.join(sorted(self.rates)) or 'none'}.",
            )
        return found

    @property
    def flop_per_s_16bit(self) -> Rate:
        """The rate that 16-bit weights run at: bf16, else fp16."""
        return self.rates.get("bf16") or self.rate("fp16")

    @property
    def cuda_memory(self) -> Estimate:
        """Bytes that the runtime can hand out, as a range where the exact total was never seen."""
        if self.cuda_memory_bytes is not None:
            low, high = self.cuda_memory_bytes
            return Estimate(low=low, best=(low + high) // 2, high=high, provenance=Provenance.DATASHEET)
        if self.driver_memory_bytes is None:
            return Estimate(
                low=0.93 * self.memory_label_bytes,
                best=0.97 * self.memory_label_bytes,
                high=self.memory_label_bytes,
                provenance=Provenance.ASSUMED,
            )
        if self.vendor != "NVIDIA":
            best = float(self.driver_memory_bytes)
            return Estimate(low=best - 300 * MIB, best=best, high=best, provenance=Provenance.DATASHEET)
        reserve_low, reserve_best, reserve_high = CUDA_RESERVE_BYTES
        total = self.driver_memory_bytes
        return Estimate(
            low=total - reserve_high,
            best=total - reserve_best,
            high=total - reserve_low,
            provenance=Provenance.ASSUMED,
        )
