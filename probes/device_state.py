"""What an NVIDIA device says about itself before, during and after a run, and what that means in words. No torch.

NVML needs no CUDA context, so it is read in the process that watches the workers. Each value is asked for by itself; one
that is not given is None, never 0. Clocks and power limits are reported, never changed.

Bits: https://docs.nvidia.com/deploy/nvml-api/api/group__nvmlClocksEventReasons.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from calc.units import MIB

REASONS: Final[Mapping[int, str]] = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}
THROTTLED: Final = 0x8 | 0x20 | 0x40 | 0x80  # a power cap alone is normal during matrix products
CLOCK_DROP: Final = 0.10  # fall of the clock from its best to its mean under load that is worth a tag
BUSY_BYTES: Final = 200 * MIB
BUSY_UTILISATION: Final = 5  # percent
UNKNOWN: Final = (1 << 64) - 1  # what a driver under WSL says for numbers that it does not know


class NvmlReader:
    """Reads one device by UUID; every method answers None where NVML, the device or the number is not there."""

    def __init__(self, uuid: str | None) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        self.reason = ""
        if not uuid:
            self.reason = "The device has no NVML identity."
            return
        try:
            import pynvml
        except ImportError:
            self.reason = "The NVML binding (nvidia-ml-py) is not installed."
            return
        try:
            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except (pynvml.NVMLError, OSError) as error:
            self.reason = f"NVML does not show this device: {error}."

    def close(self) -> None:
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError, OSError):
                self._nvml.nvmlShutdown()
            self._nvml = self._handle = None

    def _ask(self, name: str, *arguments: Any) -> Any:
        call = getattr(self._nvml, name, None)
        if call is None or self._handle is None:
            return None
        try:
            answer = call(self._handle, *arguments)
        except (self._nvml.NVMLError, OSError, TypeError):
            return None
        return None if answer == UNKNOWN else answer

    def load(self) -> dict[str, Any] | None:
        """What changes while a device works: clocks, power, temperature, reasons, the bus. Cheap enough for 20 Hz."""
        if self._handle is None:
            return None
        nvml = self._nvml
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return {
            "sm_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "memory_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "power_w": None if milliwatts is None else milliwatts / 1e3,
            "temperature_c": self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            "reasons": reasons,
            "pcie_generation": self._ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            "pcie_width": self._ask("nvmlDeviceGetCurrPcieLinkWidth"),
        }

    def identity(self) -> dict[str, Any] | None:
        """What stays: limits, memory, ECC, MIG, who else is there, the bus at its best."""
        if self._handle is None:
            return None
        nvml = self._nvml
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        default = self._ask("nvmlDeviceGetPowerManagementDefaultLimit")
        ecc, mig = self._ask("nvmlDeviceGetEccMode"), self._ask("nvmlDeviceGetMigMode")
        used = self._ask("nvmlDeviceGetUtilizationRates")
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses")
        errors = self._ask(
            "nvmlDeviceGetTotalEccErrors",
            getattr(nvml, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", 1),
            getattr(nvml, "NVML_VOLATILE_ECC", 0),
        )
        return {
            "sm_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
            "memory_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
            "power_limit_w": None if limit is None else limit / 1e3,
            "power_default_w": None if default is None else default / 1e3,
            "memory_total_bytes": None if memory is None else int(memory.total),
            "memory_used_bytes": None if memory is None else int(memory.used),
            "ecc": None if ecc is None else bool(ecc[0]),
            "ecc_errors": errors,
            "mig": None if mig is None else bool(mig[0]),
            "utilisation": None if used is None else int(used.gpu),
            "processes": None if processes is None else len(processes),
            "pcie_max_generation": self._ask("nvmlDeviceGetMaxPcieLinkGeneration"),
            "pcie_max_width": self._ask("nvmlDeviceGetMaxPcieLinkWidth"),
            "compute_mode": self._ask("nvmlDeviceGetComputeMode"),
        }


def summary(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Samples under load in one record: mean and extremes, reasons of all of them together."""
    found: dict[str, Any] = {"samples": len(samples)}
    for name in ("sm_mhz", "memory_mhz", "power_w", "temperature_c"):
        values = [float(sample[name]) for sample in samples if sample.get(name) is not None]
        if values:
            found[name] = {"mean": sum(values) / len(values), "low": min(values), "high": max(values)}
    reasons = [int(sample["reasons"]) for sample in samples if sample.get("reasons") is not None]
    combined = 0
    for value in reasons:
        combined |= value
    found["reasons"] = combined if reasons else None
    for name in ("pcie_generation", "pcie_width"):
        found[name] = max((s[name] for s in samples if s.get(name) is not None), default=None)
    return found


def throttled(samples: Sequence[Mapping[str, Any]]) -> bool:
    """Whether heat or the board held the device back in any sample. A power cap alone does not count."""
    return any(int(sample.get("reasons") or 0) & THROTTLED for sample in samples)


def reason_words(bits: int | None) -> list[str]:
    """The set bits by name."""
    return [word for bit, word in REASONS.items() if bits and bits & bit]


def in_use(identity: Mapping[str, Any] | None) -> str:
    """Empty, or who else is on the device before anything of ours runs."""
    if not identity:
        return ""
    words = []
    used = identity.get("memory_used_bytes")
    if identity.get("processes") and used and used > BUSY_BYTES:
        words.append(f"{identity['processes']} other processes hold {used / MIB:,.0f} MiB")
    if (identity.get("utilisation") or 0) > BUSY_UTILISATION:
        words.append(f"it is {identity['utilisation']}% busy")
    return " and ".join(words)


def remarks(state: Mapping[str, Any]) -> list[str]:
    """What a person should know about the state of the device during a run, in whole sentences."""
    before, load = state.get("before") or {}, state.get("load") or {}
    found = []
    bits = load.get("reasons")
    if bits and bits & THROTTLED:
        held = ", ".join(reason_words(bits & THROTTLED))
        found.append(f"The device was held back during the run: {held}. Check cooling and power supply.")
    elif bits and bits & 0x4:
        found.append("The power limit capped the clock during heavy products; that is normal.")
    limit, default = before.get("power_limit_w"), before.get("power_default_w")
    if limit and default and limit < 0.98 * default:
        found.append(f"The power limit is {limit:.0f} W where {default:.0f} W is the default.")
    clock = load.get("sm_mhz")
    if clock and clock["mean"] < (1 - CLOCK_DROP) * clock["high"]:
        found.append(
            f"The clock fell from {clock['high']:.0f} to {clock['mean']:.0f} MHz on average under load."
        )
    if before.get("ecc_errors"):
        found.append(f"{before['ecc_errors']} uncorrected memory errors since the last reset.")
    if before.get("mig"):
        found.append("MIG is on: the numbers are those of the slice, not of the whole card.")
    generation, best = load.get("pcie_generation"), before.get("pcie_max_generation")
    width, widest = load.get("pcie_width"), before.get("pcie_max_width")
    if generation and best and (generation < best or (width and widest and width < widest)):
        found.append(
            f"PCIe ran at gen {generation} x{width} under load, of gen {best} x{widest}: check the slot and its riser."
        )
    busy = in_use(before)
    if busy:
        found.append(f"The device was shared: {busy}. Measured rates are what was left.")
    return found
