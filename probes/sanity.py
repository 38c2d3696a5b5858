"""Is a run plausible? Each rate against what others measured on the same kind of device, in whole sentences. No torch.

Ranges are shares of the datasheet's peak, generous on purpose; each with its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calc import format as fmt
from calc.accelerator import Accelerator
from calc.units import GB
from presets import accelerators
from probes.readings import readings


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """The share of a peak that a kind of device usually reaches, and the wider range that is still plausible."""

    low: float
    high: float
    source: str


# Start of the catalogue's id -> share of the memory bandwidth.
BANDWIDTH: Final[Mapping[str, Usual]] = {
    "a100": Usual(low=0.78, high=0.94, source="BabelStream #137: 86 to 87%"),
    "a800": Usual(low=0.78, high=0.94, source="mli/transformers-benchmarks #4: 89%"),
    "h100": Usual(low=0.74, high=0.94, source="vLLM #48110: 82 to 84%; NCCL #1264: 77%"),
    "h200": Usual(low=0.74, high=0.94, source="as H100"),
    "b200": Usual(low=0.78, high=0.95, source="CCCL #7391, #9481: 87 to 94%"),
    "rtx-40": Usual(low=0.82, high=0.96, source="clpeak #106: 91% on an RTX 4090"),
    "rtx-50": Usual(low=0.80, high=0.95, source="CCCL #9881: 88% on an RTX 5090"),
    "mi300": Usual(low=0.68, high=0.88, source="rocm-systems #2934: 74 to 79%"),
    "mi325": Usual(low=0.68, high=0.88, source="rocm-systems #2934: 71%"),
}
ANY_BANDWIDTH: Final = Usual(low=0.65, high=0.97, source="between the extremes of the devices above")
# Vendor -> share of the dense rate that the best large product sustains.
MAMF: Final = "stas00/ml-engineering, table of achievable matmul rates"
COMPUTE: Final[Mapping[tuple[str, str], Usual]] = {
    ("NVIDIA", "bf16"): Usual(low=0.55, high=0.95, source=f"{MAMF}: 78 to 87%; a quick run 10 to 20% lower"),
    ("NVIDIA", "fp16"): Usual(low=0.55, high=0.95, source=f"{MAMF}: as bf16"),
    ("NVIDIA", "fp8"): Usual(low=0.45, high=0.88, source=f"{MAMF}: 71 to 78%"),
    ("AMD", "bf16"): Usual(low=0.35, high=0.78, source=f"{MAMF}: 51 to 68%"),
    ("AMD", "fp16"): Usual(low=0.35, high=0.78, source=f"{MAMF}: as bf16"),
}
# Without a datasheet: what a processor's memory may give at all.
CPU_BANDWIDTH: Final = (1 * GB, 1000 * GB)
CHECKS: Final = "check the power limit, ECC, cooling, and other programs on the device"


UNSTEADY_SHARE: Final = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One rate: measured, the datasheet's peak (None where there is none), its usual share, and the verdict in words."""

    quantity: str
    measured: float
    unit: str
    peak: float | None
    usual: Usual | None
    plausible: bool
    sentence: str

    @property
    def share(self) -> float | None:
        return None if self.peak is None else self.measured / self.peak


def findings(run: Mapping[str, Any]) -> list[Finding]:
    """Bandwidth and rates of a run, each with its verdict."""
    found = readings(run)
    known = run["device"].get("catalogue")
    device = accelerators.load(known) if known in accelerators.all_ids() else None
    name = str(run["device"].get("name") or "device")
    rows = []
    if found.bandwidth is not None:
        usual = None if device is None else _bandwidth_range(device)
        peak = None if device is None else device.bandwidth_bytes_per_s
        rows.append(
            _finding(
                "memory bandwidth", measured=found.bandwidth, unit="B/s", peak=peak, usual=usual, name=name
            )
        )
    for form, value in found.compute.items():
        slow = found.large_products.get(form)
        rate = device.rates.get(form) if device is not None else None
        usual = COMPUTE.get((device.vendor, form)) if device is not None else None
        rows.append(
            _finding(
                f"{form} rate",
                measured=value,
                unit="FLOP/s",
                peak=rate.flop_per_s if rate else None,
                usual=usual,
                name=name,
                slow=slow,
            )
        )
    return rows


def _bandwidth_range(device: Accelerator) -> Usual:
    return next((usual for start, usual in BANDWIDTH.items() if device.id.startswith(start)), ANY_BANDWIDTH)


def _finding(
    quantity: str,
    *,
    measured: float,
    unit: str,
    peak: float | None,
    usual: Usual | None,
    name: str,
    slow: float | None = None,
) -> Finding:
    reading = fmt.si(measured, unit)
    many = (
        f" That is with few tokens; products of many reach {fmt.si(slow, unit)}, so prompts take longer than predicted."
        if slow
        else ""
    )
    if peak is None or usual is None:
        plausible = not quantity.startswith("memory") or CPU_BANDWIDTH[0] <= measured <= CPU_BANDWIDTH[1]
        words = f"{name}: {quantity} {reading}; " + (
            f"that is {fmt.percent(measured / peak)} of its datasheet, and nobody's figures are known here."
            if peak
            else "there is no datasheet to hold it against."
        )
        if not plausible:
            words += " A processor's memory gives 1 to 1,000 GB/s: the figure is not plausible."
        return Finding(
            quantity=quantity,
            measured=measured,
            unit=unit,
            peak=peak,
            usual=usual,
            plausible=plausible,
            sentence=words + many,
        )
    share = measured / peak
    words = (
        f"{name} reaches {fmt.percent(share)} of its {quantity} ({reading}); "
        f"{fmt.percent(usual.low)} to {fmt.percent(usual.high)} is usual"
    )
    if share < usual.low:
        words += f": {CHECKS}."
    elif share > usual.high:
        words += ": more than others ever saw. The datasheet entry may be of another variant, or a cache was measured."
    else:
        words += "."
    return Finding(
        quantity=quantity,
        measured=measured,
        unit=unit,
        peak=peak,
        usual=usual,
        plausible=usual.low <= share <= usual.high,
        sentence=words + many,
    )


def unsteady(run: Mapping[str, Any]) -> list[str]:
    """A sentence where more than a third of the cases varied by over 10%, else nothing."""
    tagged = sum("unstable" in case.get("tags", ()) for case in run["cases"])
    if tagged <= UNSTEADY_SHARE * len(run["cases"]):
        return []
    words = f"{tagged} of {len(run['cases'])} cases varied by more than 10%: something else was busy."
    return [f"{words} Measure again when the machine is quiet."]
