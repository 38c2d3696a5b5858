"""The accelerators of this machine, as NVML sees them: name, UUID, memory, what others use, driver; and their catalogue entry.

Nothing here raises: a machine without a GPU, a driver or the Python binding is the usual case, and every absence is
a quiet empty result with its reason in words. NVML is read through `pynvml` (distribution nvidia-ml-py), imported
when first asked for; no CUDA context is made, so looking costs the device no memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from calc.accelerator import Accelerator
from calc.errors import InputError
from calc.units import MIB
from presets import accelerators
from presets.accelerators.mig import mig_profiles

# Two valid totals per card exist in the wild: drivers before about 510 printed the total less their own reserve.
MEMORY_TOLERANCE = 0.02

# GDDR cards give a sixteenth of their memory to ECC where it is switched on.
ECC_SHARE = 1 / 16

# What a total may be: anything else is a driver's way of saying that it does not know.
SMALLEST_TOTAL_BYTES = 2**28
LARGEST_TOTAL_BYTES = 2**44

# The driver keeps 0.3 to 0.9 GiB of a card; a larger share is not a reserve.
LARGEST_RESERVE_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDevice:
    """One device as the driver reports it, and the catalogue entry that it matches.

    `None` for anything that NVML would not say (a device with memory shared with the host reports no total).
    `used_by_others_bytes` is what is allocated before anything of ours runs. `accelerator` is the catalogue entry
    with this device's own total in it; where none matches, `reason` says why.
    """

    index: int
    name: str
    uuid: str | None
    total_bytes: int | None
    used_by_others_bytes: int | None
    reserved_bytes: int | None  # what the driver keeps of the total for itself
    driver: str | None
    compute_capability: str | None = None
    mig_enabled: bool = False
    accelerator: Accelerator | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDevices:
    """What was found; `reason` says why nothing was, in words for a page."""

    devices: tuple[LocalDevice, ...] = ()
    reason: str = ""


LOCAL = "local"


def local_accelerator() -> Accelerator:
    """The first device of this machine that the catalogue knows, with its own memory totals: what `--gpu local` means.

    Raises `InputError` with the reason where there is none.
    """
    found = local_devices()
    for device in found.devices:
        if device.accelerator is not None:
            return device.accelerator
    reasons = [device.reason for device in found.devices] or [found.reason]
    raise InputError(
        "gpu",
        LOCAL,
        f"no device of this machine can be taken: {' '.join(reasons)}".rstrip("."),
        next_step="Choose an accelerator of the catalogue, or type one.",
    )


def local_devices() -> LocalDevices:
    """Every NVIDIA device that this process may see. Takes a few milliseconds; call it once a session."""
    try:
        import pynvml
    except ImportError:
        return LocalDevices(reason="The NVML binding (nvidia-ml-py) is not installed.")
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError) as error:
        return LocalDevices(reason=_absence(pynvml, error))
    try:
        count = _asked(pynvml, "nvmlDeviceGetCount") or 0
        driver = _text(_asked(pynvml, "nvmlSystemGetDriverVersion"))
        found = [_device(pynvml, index, driver) for index in range(count)]
    finally:
        _asked(pynvml, "nvmlShutdown")
    devices = tuple(device for device in found if device is not None)
    return LocalDevices(
        devices=devices, reason="" if devices else "NVML runs, but shows this process no device."
    )


def _absence(pynvml: Any, error: Exception) -> str:
    """Why NVML did not start, in words."""
    library_not_found = getattr(pynvml, "NVMLError_LibraryNotFound", None)
    driver_not_loaded = getattr(pynvml, "NVMLError_DriverNotLoaded", None)
    if isinstance(error, OSError) or (library_not_found and isinstance(error, library_not_found)):
        return "No NVIDIA driver is installed on this machine."
    mismatch = getattr(pynvml, "NVMLError_LibRmVersionMismatch", None)
    if mismatch and isinstance(error, mismatch):
        return "The NVIDIA driver was updated while running: reboot, or reload its modules."
    if driver_not_loaded and isinstance(error, driver_not_loaded):
        return "An NVIDIA driver is installed but not loaded."
    return f"NVML did not start: {error}."


def _asked(pynvml: Any, name: str, *arguments: Any) -> Any:
    """The answer of one NVML call; None where this binding, driver, device or permission does not give it."""
    call = getattr(pynvml, name, None)
    if call is None:
        return None
    try:
        return call(*arguments)
    except (pynvml.NVMLError, OSError):
        return None


def _text(value: object) -> str | None:
    """NVML strings are bytes in older bindings."""
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _device(pynvml: Any, index: int, driver: str | None) -> LocalDevice | None:
    handle = _asked(pynvml, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return None
    name = _text(_asked(pynvml, "nvmlDeviceGetName", handle)) or "unknown device"
    total, used, reserved = _memory(pynvml, handle)
    capability = _asked(pynvml, "nvmlDeviceGetCudaComputeCapability", handle)
    mig_mode = _asked(pynvml, "nvmlDeviceGetMigMode", handle)
    device = LocalDevice(
        index=index,
        name=name,
        uuid=_text(_asked(pynvml, "nvmlDeviceGetUUID", handle)),
        total_bytes=total,
        used_by_others_bytes=used,
        reserved_bytes=reserved,
        driver=driver,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        mig_enabled=bool(mig_mode and mig_mode[0]),
    )
    return _matched(device)


def _memory(pynvml: Any, handle: Any) -> tuple[int | None, int | None, int | None]:
    """Total, used and reserved bytes; None for what the driver does not say, or says nonsense about.

    The second version of the call tells the driver's reserve apart from what is used; the first counts it as used.
    Under WSL an unknown number leaks through as 2^64 - 1, and devices that share the host's memory report 0.
    """
    version = getattr(pynvml, "nvmlMemory_v2", None)
    info = _asked(pynvml, "nvmlDeviceGetMemoryInfo", handle, version) if version else None
    if info is None:
        info = _asked(pynvml, "nvmlDeviceGetMemoryInfo", handle)
    if info is None or not SMALLEST_TOTAL_BYTES <= info.total <= LARGEST_TOTAL_BYTES:
        return None, None, None
    total = int(info.total)
    used = int(info.used) if 0 <= info.used <= total else None
    reserved = getattr(info, "reserved", None)
    if reserved is None or not 0 <= reserved <= LARGEST_RESERVE_SHARE * total:
        return total, used, None
    return total, used, int(reserved)


def _matched(device: LocalDevice) -> LocalDevice:
    """The device with the catalogue entry of its name and memory, or the reason why there is none."""
    if device.mig_enabled:
        return _matched_mig(device)
    entry = match(device.name, device.total_bytes)
    if entry is None:
        known = _named(device.name)
        if known:
            expected = " or ".join(f"{(a.driver_memory_bytes or 0) / MIB:,.0f} MiB" for a in known)
            reason = (
                f"{device.name} is in the catalogue with {expected}, but this one reports "
                f"{(device.total_bytes or 0) / MIB:,.0f} MiB (a virtual GPU, a slice, or a modified card)."
            )
        else:
            reason = f"{device.name} is not in the catalogue: type its bandwidth and rate, or measure it."
        return replace(device, reason=reason)
    return replace(device, accelerator=with_own_total(device, entry))


def _matched_mig(device: LocalDevice) -> LocalDevice:
    known = _named(device.name)
    names = [f"{known[0].id}:{profile.name}" for profile in mig_profiles(known[0].id)] if known else []
    reason = f"{device.name} runs in MIG mode: choose the slice that you serve on"
    return replace(device, reason=reason + (f" ({', '.join(names)})." if names else "."))


def _named(name: str) -> list[Accelerator]:
    """Catalogue entries whose driver name this is. One name may stand for several memory sizes."""
    key = accelerators.matching_key(name)
    return [
        accelerators.load(part_id)
        for part_id in accelerators.all_ids()
        if key in {accelerators.matching_key(reported) for reported in accelerators.reported_names(part_id)}
    ]


def match(name: str, total_bytes: int | None) -> Accelerator | None:
    """The catalogue entry of a device that the driver calls `name` and gives `total_bytes`, within 2%.

    The total with ECC off or on counts as the same card. A device without a total (memory shared with the host)
    matches by name alone. None where the name is unknown or the memory says that it is something else.
    """
    for entry in _named(name):
        if total_bytes is None or entry.driver_memory_bytes is None:
            return entry
        known = entry.driver_memory_bytes
        totals: list[float] = [known]
        if entry.memory_type.startswith("GDDR"):
            totals += [known * (1 - ECC_SHARE), known / (1 - ECC_SHARE)]
        if any(abs(total_bytes - total) <= MEMORY_TOLERANCE * total for total in totals):
            return entry
    return None


def with_own_total(device: LocalDevice, entry: Accelerator) -> Accelerator:
    """A catalogue entry with the totals that this very device reports in place of the catalogue's.

    Where the driver states its reserve, the runtime's total is the rest; where it does not, and the driver's total is
    another than the catalogue's, the runtime's total is a range again.
    """
    total, reserved = device.total_bytes, device.reserved_bytes
    if total is None:
        return entry
    runtime = entry.cuda_memory_bytes if total == entry.driver_memory_bytes else None
    if reserved is not None:
        runtime = (total - reserved, total - reserved)
    return replace(
        entry,
        driver_memory_bytes=total,
        cuda_memory_bytes=runtime,
        confirmed=f"Memory totals from this device's driver. {entry.confirmed}",
    )
