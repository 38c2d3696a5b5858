"""Why a device cannot be measured, and what to do next: one message for each way in which a machine lacks something.

Pure: from what the worker's torch says (`facts`), what NVML says (`presets.local_device`), and what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from presets.local_device import LocalDevices

INSTALL = "pip install -e '.[probe]'"
CPU_NOTE = "`ridgebeam probe --device cpu` measures the processor meanwhile."


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """What is missing, in one sentence, and the next step."""

    kind: str
    message: str
    next_step: str


def no_torch(error: str = "") -> Absence:
    """PyTorch is not there, or does not load."""
    if error and "No module named" not in error:
        return Absence(
            kind="torch does not load",
            message=f"PyTorch is installed but does not load: {error}",
            next_step="Reinstall it for this system (https://pytorch.org/get-started/locally/).",
        )
    return Absence(
        kind="no torch",
        message="Measuring needs PyTorch, which is not installed beside Ridgebeam.",
        next_step=f"Install it: {INSTALL}. Everything else in Ridgebeam works without it.",
    )


def absences(
    software: Mapping[str, Any],
    devices: Sequence[Mapping[str, Any]],
    nvml: LocalDevices,
    *,
    system: str = "",
) -> list[Absence]:
    """Everything that keeps an accelerator of this machine from being measured; empty when nothing does."""
    if not software.get("torch"):
        return [no_torch(str(software.get("error", "")))]
    found = []
    gpus = [device for device in devices if device.get("kind") != "cpu"]
    if nvml.devices and not any(device.get("kind") == "cuda" for device in gpus):
        found.append(_cuda_absent(software, nvml))
    elif not gpus:
        found.append(_no_gpu(nvml))
    found += [_no_kernel(software, device) for device in gpus if device.get("error")]
    if nvml.devices and any(device.mig_enabled for device in nvml.devices):
        found.append(
            Absence(
                kind="mig",
                message="MIG is on: what is measured is the slice that this process sees, not the whole card.",
                next_step="Choose the slice in the sidebar (the GPU's id, a colon, the profile).",
            )
        )
    if "microsoft" in system.lower():
        found.append(
            Absence(
                kind="wsl",
                message="Under WSL the driver moves memory to the host instead of failing, and NVML tells little.",
                next_step="Close other programs on the GPU; sizes stay below half of the free memory.",
            )
        )
    return found


def _cuda_absent(software: Mapping[str, Any], nvml: LocalDevices) -> Absence:
    name = nvml.devices[0].name
    warnings = " ".join(software.get("warnings", ()))
    if not software.get("cuda"):
        return Absence(
            kind="cpu-only torch",
            message=f"This machine has an {name}, but its PyTorch ({software['torch']}) was built without CUDA.",
            next_step="Install a CUDA build of PyTorch (https://pytorch.org/get-started/locally/). "
            + CPU_NOTE,
        )
    if "too old" in warnings or "driver" in warnings.lower():
        return Absence(
            kind="driver too old",
            message=f"The NVIDIA driver ({nvml.devices[0].driver}) does not serve PyTorch's CUDA {software['cuda']}.",
            next_step="Update the driver, or install a PyTorch built for an older CUDA. " + CPU_NOTE,
        )
    return Absence(
        kind="cuda not available",
        message=f"NVML shows an {name}, but PyTorch opens no CUDA device"
        + (f": {warnings}" if warnings else "."),
        next_step="In a container, start it with its GPUs (--gpus all); check CUDA_VISIBLE_DEVICES. "
        + CPU_NOTE,
    )


def _no_gpu(nvml: LocalDevices) -> Absence:
    if "updated while running" in nvml.reason:
        return Absence(
            kind="driver mismatch",
            message=nvml.reason,
            next_step="Reboot, then measure again. " + CPU_NOTE,
        )
    return Absence(
        kind="no gpu",
        message=f"No accelerator was found that PyTorch can open. {nvml.reason}".strip(),
        next_step="Run `ridgebeam probe --out run.json` on the machine that has one, and import the file here. "
        + CPU_NOTE,
    )


def _no_kernel(software: Mapping[str, Any], device: Mapping[str, Any]) -> Absence:
    capability = device.get("capability")
    wanted = f"sm_{str(capability).replace('.', '')}" if capability else ""
    built = [str(arch) for arch in software.get("arch_list", ())]
    covered = any(_covers(arch, capability) for arch in built) if capability else True
    if wanted and built and not covered:
        return Absence(
            kind="no kernel image",
            message=f"{device.get('name')} is {wanted}, and this PyTorch was built for {', '.join(built)}.",
            next_step="Install a PyTorch that names this architecture (a newer one for new cards, an older one for old).",
        )
    return Absence(
        kind="device fails",
        message=f"{device.get('name', device.get('device'))} does not run a first kernel: {device.get('error')}",
        next_step="Check that other programs can use it, and that driver and PyTorch belong together.",
    )


def _covers(arch: str, capability: object) -> bool:
    """Whether a built architecture serves a device: same major version and no newer minor, or PTX of any older one."""
    found = re.fullmatch(r"(sm|compute)_(\d+)(\d)[af]?", arch)
    if not found:
        return False
    major, minor = (int(part) for part in str(capability).split("."))
    built = (int(found[2]), int(found[3]))
    if found[1] == "compute":
        return built <= (major, minor)
    return built[0] == major and built[1] <= minor
