"""The device that a worker measures, behind one face for CUDA, ROCm, XPU, MPS and the CPU. Imports torch.

ROCm keeps torch's `cuda` names; `torch.version.hip` tells it apart.
"""

from __future__ import annotations

import os
import platform
import warnings
from pathlib import Path
from typing import Any

import torch

from calc.units import GIB, MIB

# Last caches that a driver does not report: AMD's Infinity Cache is not its L2 (256 MiB on MI300), Apple's system
# cache is at most 96 MiB, and a virtual machine may hide the CPU's.
UNKNOWN_CACHE_BYTES = {
    "rocm": 256 * MIB,
    "xpu": 192 * MIB,
    "mps": 96 * MIB,
    "cpu": 64 * MIB,
    "cuda": 256 * MIB,
}
UNKNOWN_FREE_BYTES = 4 * GIB
FP8_CAPABILITY = (8, 9)
BF16_CAPABILITY = (8, 0)


class TorchDevice:
    """One device: its kind, how to wait for it, its free memory and its last cache."""

    def __init__(self, name: str) -> None:
        self.device = torch.device(name)
        self.kind = kind_of(name)

    @property
    def has_graphs(self) -> bool:
        return self.device.type == "cuda"

    def synchronize(self) -> None:
        """Wait until everything queued has run; on the CPU nothing is queued."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "xpu":
            torch.xpu.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def empty_cache(self) -> None:
        """Give memory that nothing uses back to the device."""
        module = getattr(torch, self.device.type, None)
        release = getattr(module, "empty_cache", None)
        if release is not None:
            release()

    def free_bytes(self) -> int:
        """Memory that may be taken now."""
        if self.device.type in {"cuda", "xpu"}:
            module = getattr(torch, self.device.type)
            try:
                return int(module.mem_get_info(self.device)[0])
            except (RuntimeError, AttributeError):
                return UNKNOWN_FREE_BYTES
        if self.device.type == "mps":
            recommended = getattr(torch.mps, "recommended_max_memory", None)
            used = torch.mps.current_allocated_memory()
            return int(recommended() - used) if recommended else UNKNOWN_FREE_BYTES
        return host_free_bytes()

    def cache_bytes(self) -> int:
        """The last cache, which operands must exceed to be read from memory."""
        if self.kind == "cpu":
            return cpu_cache_bytes() or UNKNOWN_CACHE_BYTES["cpu"]
        if self.kind == "cuda":
            reported = getattr(torch.cuda.get_device_properties(self.device), "L2_cache_size", 0)
            return int(reported) or UNKNOWN_CACHE_BYTES["cuda"]
        return UNKNOWN_CACHE_BYTES[self.kind]

    @property
    def formats(self) -> tuple[str, ...]:
        """Compute formats worth trying; what fails is recorded by the probe."""
        if self.kind == "cpu":
            return ("bf16", "fp32", "fp16", "int8")
        if self.kind == "mps":
            return ("fp16", "bf16", "fp32")
        if self.kind == "xpu":
            return ("bf16", "fp16", "fp32", "int8")
        capability = torch.cuda.get_device_capability(self.device)
        if self.kind == "cuda" and capability < BF16_CAPABILITY:
            return ("fp16", "fp32", "int8")
        fp8 = ("fp8",) if self.kind == "rocm" or capability >= FP8_CAPABILITY else ()
        tf32 = ("tf32",) if self.kind == "cuda" else ()
        return ("bf16", *fp8, "fp16", *tf32, "fp32", "int8")

    @property
    def sixteen_bit(self) -> str:
        """The 16-bit format that models run in here."""
        return "fp16" if self.formats[0] == "fp16" else "bf16"

    def facts(self) -> dict[str, Any]:
        """What the device says about itself, for the record of a run."""
        found: dict[str, Any] = {
            "device": str(self.device),
            "kind": self.kind,
            "cache_bytes": self.cache_bytes(),
            "free_bytes": self.free_bytes(),
        }
        if self.device.type == "cuda":
            found |= _cuda_facts(self.device)
        elif self.device.type == "xpu":
            found |= {
                "name": torch.xpu.get_device_name(self.device),
                "memory_bytes": torch.xpu.get_device_properties(self.device).total_memory,
            }
        elif self.device.type == "mps":
            found |= {"name": f"Apple GPU ({platform.processor() or platform.machine()})"}
        else:
            found |= cpu_facts()
        return found


def kind_of(name: str) -> str:
    """cuda, rocm, xpu, mps or cpu."""
    base = name.split(":", maxsplit=1)[0]
    return "rocm" if base == "cuda" and torch.version.hip else base


def available() -> list[str]:
    """Device names that torch can open here, the best first, the CPU last."""
    found = []
    if torch.cuda.is_available():
        found += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        found += [f"xpu:{index}" for index in range(torch.xpu.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    return [*found, "cpu"]


def software() -> dict[str, Any]:
    """Versions, and what torch warned about when it looked for devices (a driver that is too old says so only there)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        devices = available()
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "arch_list": torch.cuda.get_arch_list() if torch.version.cuda else [],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "warnings": sorted({str(warning.message)[:300] for warning in caught}),
        "devices": devices,
    }


def first_kernel_error(name: str) -> str:
    """Empty, or what the device says to a one-element sum: a torch without kernels for it fails only here."""
    try:
        value = float((torch.ones(1, device=name) + 1).item())
    except RuntimeError as error:
        return str(error).splitlines()[0][:300]
    return "" if value == 2.0 else f"1 + 1 came out as {value}"


def _cuda_facts(device: torch.device) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    return {
        "name": properties.name,
        "uuid": f"GPU-{uuid}" if uuid and not str(uuid).startswith(("GPU-", "MIG-")) else uuid and str(uuid),
        "memory_bytes": properties.total_memory,
        "sm_count": properties.multi_processor_count,
        "capability": f"{properties.major}.{properties.minor}",
        "integrated": bool(getattr(properties, "is_integrated", False)),
    }


def cpu_facts() -> dict[str, Any]:
    """Name, threads and memory of the host's CPU."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return {
        "name": name,
        "threads": torch.get_num_threads(),
        "logical_cpus": os.cpu_count(),
        "memory_bytes": _meminfo("MemTotal") or _pages(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def host_free_bytes() -> int:
    """Memory of the host that may be taken, within this process's own limits and its container's."""
    found = _meminfo("MemAvailable") or _pages() or UNKNOWN_FREE_BYTES
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and used.is_file():
        text = limit.read_text(encoding="ascii").strip()
        if text.isdigit():
            found = min(found, max(0, int(text) - int(used.read_text(encoding="ascii"))))
    return found


def _meminfo(field: str) -> int | None:
    source = Path("/proc/meminfo")
    if not source.is_file():
        return None
    for line in source.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return None


def _pages() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def cpu_cache_bytes() -> int | None:
    """The last caches of the CPUs that this process may run on, added up; None where the system does not say."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    shared: dict[str, int] = {}
    for cpu in allowed:
        last = Path(f"/sys/devices/system/cpu/cpu{cpu}/cache/index3")
        if not (last / "size").is_file():
            continue
        text = (last / "size").read_text(encoding="ascii").strip()
        if text.endswith("K") and text[:-1].isdigit():
            shared[(last / "shared_cpu_list").read_text(encoding="ascii")] = int(text[:-1]) * 1024
    return sum(shared.values()) or None
