"""What an accelerator is: `Accelerator`, with dense rates, two memory totals, links, and where each number is from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from calc.errors import InputError, MissingSpec
from calc.provenance import Estimate, Provenance
from calc.units import GIB, MIB

# Formats that a rate may be given for: what the matrix units multiply in, not what weights are stored in.
COMPUTE_FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4")

# The id of a typed accelerator states its numbers and its name.
LONGEST_ID = 300
LEAST, MOST = 1e-9, 1e30  # of any quantity: times that are made of others stay numbers

# How the devices of a node reach each other over their own link: through a switch (any peer at full rate), in
# bridged pairs, in a mesh (each peer has its own links), in a torus (neighbours only).
LINK_TOPOLOGIES = ("switch", "bridge", "mesh", "torus")

# An NVIDIA card whose CUDA total was never seen: the driver's total less this much. Public start-up logs show gaps of 0.26
# to 0.93 GiB on 25 parts, growing with the memory (page tables): a robust line through them, off by 0.12% of the total
# in the mean and 0.64% at most, where half a GiB for all is off by 0.19% and 0.74%.
CUDA_RESERVE_BYTES = (0.3 * GIB, 0.9 * GIB)  # low, high
CUDA_RESERVE_FIXED_BYTES = 0.41 * GIB
CUDA_RESERVE_SHARE = 0.0018

# A part whose total no device output shows: its label times this much. Where the total is known, the driver reports
# 1.00 (a decimal label, or ECC on GDDR) to 1.0737 (a label that means GiB) of it, and the runtime a little less.
LABEL_SHARES = (0.97, 1.03, 1.0737)  # low, best, high

# Runtimes of other vendors than NVIDIA hand out what the driver reports, or up to this much less (newer ROCm).
OTHER_RESERVE_BYTES = 300 * MIB

# Cards that come alone (GeForce, workstation cards) share a host on its PCIe slots. A board with four x16 slots of double
# width is the common one (Supermicro SYS-221GE-NR manual, p. 39: four PCIe 5.0 x16 bays for double-width GPUs); cards
# of three slots need risers there, and boards of eight exist, so that the figure is a choice and a degree can be typed.
CARDS_PER_HOST = 4


class Confirmation(StrEnum):
    """How well a record is confirmed, from the best to the weakest; the record's `confirmed` says it in words."""

    VENDOR = "vendor text read"
    CROSS_CHECKED = "several public tables agree"
    ONE_TABLE = "one public table agrees"
    RECALLED = "recalled"
    MADE_UP = "made up for a lesson"
    TYPED = "typed by the user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A peak compute rate in FLOP/s (OP/s for integers), dense, with FP32 (INT32) accumulation.

    `range_factor`: the true peak lies between flop_per_s/range_factor and flop_per_s*range_factor; 1 for a published
    figure. `sustained_flop_per_s`: what power or the shipping clock leaves of the published peak, where that is known.
    `reason`: how an assumed rate was arrived at.
    """

    flop_per_s: float
    provenance: Provenance = Provenance.DATASHEET
    range_factor: float = 1.0
    sustained_flop_per_s: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        _positive(flop_per_s=self.flop_per_s, sustained_flop_per_s=self.sustained_flop_per_s)
        if not 1.0 <= self.range_factor <= 100.0:
            raise InputError("range_factor", self.range_factor, "it must be from 1 to 100")
        if self.sustained_flop_per_s is not None and self.sustained_flop_per_s > self.flop_per_s:
            raise InputError(
                "sustained_flop_per_s", self.sustained_flop_per_s, "it cannot exceed the peak rate"
            )

    @property
    def estimate(self) -> Estimate:
        """The rate with its range."""
        return Estimate.within(self.flop_per_s, self.range_factor, self.provenance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device as an engine sees it (a die of a package where the driver shows two).

    `rates` by compute format (`COMPUTE_FORMATS`), dense. `short_accumulate_rates`: the higher rates of parts that
    halve FP32 accumulation, which serving engines do not use. Bandwidths in bytes/s (decimal vendors' figures),
    `bandwidth_range_bytes_per_s` the lowest and highest published where sources disagree. `link_bytes_per_s` one way,
    all links of the device together. `memory_label_bytes` is the number on the box times 1e9; None for a CPU socket,
    whose memory is whatever was fitted. `unified_shares`: for memory shared with the host, the share of the label
    that the accelerator may hold (low, best, high). `devices_per_package` devices are sold, and usually priced, as
    one.
    """

    id: str
    vendor: str
    name: str
    arch: str
    memory_label_bytes: float | None
    driver_memory_bytes: int | None  # what nvidia-smi or its kin reports
    cuda_memory_bytes: tuple[int, int] | None  # what the runtime totals: (lowest, highest) seen
    bandwidth_bytes_per_s: float
    bandwidth_range_bytes_per_s: tuple[float, float] | None = None
    rates: Mapping[str, Rate] = field(default_factory=lambda: MappingProxyType({}))
    short_accumulate_rates: Mapping[str, Rate] = field(default_factory=lambda: MappingProxyType({}))
    compute_capability: str | None = None
    form_factor: str = ""
    year: int | None = None
    memory_type: str = ""
    unified_shares: tuple[float, float, float] | None = None
    l2_bytes: float | None = None
    sm_count: int | None = None
    clock_hz: float | None = None
    link_bytes_per_s: float | None = None
    link_kind: str = ""  # "NVLink 4", "Infinity Fabric", "ICI" ...
    link_topology: str = ""  # one of LINK_TOPOLOGIES
    link_to_one_peer_bytes_per_s: float | None = None  # None: one peer can have all of it
    link_domain_size: int | None = (
        None  # devices that the link joins, where that is not the node (a rack, a pair)
    )
    pcie: str = ""
    node_size: int = 1
    devices_per_package: int = 1
    power_w: float | None = None
    source_url: str = ""
    source_date: str = ""
    confirmation: Confirmation = Confirmation.TYPED
    confirmed: str = ""  # how well the record is confirmed, in words
    notes: str = ""

    def __post_init__(self) -> None:
        if not self.id or len(self.id) > LONGEST_ID:
            raise InputError("id", self.id, f"it must be a name of 1 to {LONGEST_ID} characters")
        _positive(
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            memory_label_bytes=self.memory_label_bytes,
            driver_memory_bytes=self.driver_memory_bytes,
            l2_bytes=self.l2_bytes,
            sm_count=self.sm_count,
            clock_hz=self.clock_hz,
            link_bytes_per_s=self.link_bytes_per_s,
            link_to_one_peer_bytes_per_s=self.link_to_one_peer_bytes_per_s,
            power_w=self.power_w,
        )
        _whole(node_size=self.node_size, devices_per_package=self.devices_per_package)
        if self.link_domain_size is not None:
            _whole(link_domain_size=self.link_domain_size)
        for name in ("rates", "short_accumulate_rates"):
            unknown = sorted(set(getattr(self, name)) - set(COMPUTE_FORMATS))
            if unknown:
                raise InputError(name, unknown[0], f"the compute formats are {', '.join(COMPUTE_FORMATS)}")
        if self.link_topology and self.link_topology not in LINK_TOPOLOGIES:
            raise InputError(
                "link_topology", self.link_topology, f"it is one of {', '.join(LINK_TOPOLOGIES)}"
            )
        _ordered("cuda_memory_bytes", self.cuda_memory_bytes)
        _ordered("bandwidth_range_bytes_per_s", self.bandwidth_range_bytes_per_s)
        _ordered("unified_shares", self.unified_shares)
        self._check_memory()

    def _check_memory(self) -> None:
        """A runtime never totals more than the driver: the usual sign of GB taken for GiB, or of swapped fields."""
        if self.cuda_memory_bytes and self.driver_memory_bytes:
            highest = self.cuda_memory_bytes[1]
            if highest > self.driver_memory_bytes * 1.001:  # logs print two decimals of GiB
                raise InputError(
                    "cuda_memory_bytes",
                    highest,
                    f"the driver reports {self.driver_memory_bytes} bytes in all",
                )

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
    def host_devices(self) -> int:
        """How many devices one host holds: those of its node, or the cards that fit the PCIe slots of a common board."""
        alone = self.node_size == 1 and self.devices_per_package == 1
        return CARDS_PER_HOST if alone and self.form_factor == "PCIe" else self.node_size

    @property
    def linked_devices(self) -> int:
        """How many devices the link joins: a bridged pair, the node, or a rack (72 with GB200)."""
        if self.link_domain_size is not None:
            return self.link_domain_size
        return 2 if self.link_topology == "bridge" else self.node_size

    def link_among(self, devices: int) -> float | None:
        """Bytes/s, one way, that a device has for its peers over its own link when `devices` of them talk together.

        None where the link does not join so many: their traffic takes the host's bus or the network. In a mesh each peer
        has its own links, so that few devices use few of them.
        """
        if self.link_bytes_per_s is None or not 2 <= devices <= self.linked_devices:
            return None
        if self.link_to_one_peer_bytes_per_s is None:
            return self.link_bytes_per_s
        return min(self.link_bytes_per_s, self.link_to_one_peer_bytes_per_s * (devices - 1))

    @property
    def cuda_memory(self) -> Estimate:
        """Bytes that the runtime can hand out, as a range where the exact total was never seen.

        Raises `MissingSpec` for a part without memory of its own (a CPU socket): the plan has to say how much.
        """
        if self.cuda_memory_bytes is not None:
            low, high = self.cuda_memory_bytes
            return Estimate(low=low, best=(low + high) // 2, high=high, provenance=Provenance.DATASHEET)
        if self.unified_shares is not None and self.memory_label_bytes is not None:
            return _shares_of(self.memory_label_bytes, self.unified_shares)
        if self.driver_memory_bytes is None:
            if self.memory_label_bytes is None:
                raise MissingSpec(
                    f"{self.name} has no memory of its own; it depends on what is fitted.",
                    next_step="Say how much there is: Memory of one device, under layout, engine, price; --device-memory-gib on the command line.",
                )
            return _shares_of(self.memory_label_bytes, LABEL_SHARES)
        if self.vendor != "NVIDIA":
            best = float(self.driver_memory_bytes)
            return Estimate(
                low=best - OTHER_RESERVE_BYTES, best=best, high=best, provenance=Provenance.DATASHEET
            )
        total = self.driver_memory_bytes
        reserve_low, reserve_high = CUDA_RESERVE_BYTES
        reserve_best = CUDA_RESERVE_FIXED_BYTES + CUDA_RESERVE_SHARE * total
        return Estimate(
            low=total - max(reserve_high, reserve_best),
            best=total - reserve_best,
            high=total - reserve_low,
            provenance=Provenance.ASSUMED,
        )


def _whole(**counts: int) -> None:
    """Refuse, by its name, a count that is not a whole number from 1 to 100,000."""
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 100_000:
            raise InputError(name, count, "it must be a whole number from 1 to 100,000")


def _shares_of(label_bytes: float, shares: tuple[float, float, float]) -> Estimate:
    low, best, high = (share * label_bytes for share in shares)
    return Estimate(low=low, best=best, high=high, provenance=Provenance.ASSUMED)


def _positive(**fields: float | None) -> None:
    """Refuse, by its name, a quantity that is given but is not a positive finite number."""
    for name, value in fields.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(name, value, "it must be a number")
        if not LEAST <= value <= MOST:  # no NaN is; a whole number may be too long for a float
            raise InputError(name, value, f"it must be from {LEAST:g} to {MOST:g}")


def _ordered(name: str, values: tuple[float, ...] | None) -> None:
    """Refuse a range that is not positive or not in rising order."""
    if values is None:
        return
    _positive(**dict.fromkeys([name], min(values)), **{f"{name} (highest)": max(values)})
    if list(values) != sorted(values):
        raise InputError(name, values, "a range goes from low to high")
