"""Memory bandwidth against size: scale, triad and read far beyond the last cache, and scale from 1 MiB up.

Ordinary kernels, not the copy engine, whose path is another. Bytes are counted analytically: 2N for scale, 3N for triad,
N for read. The last sizes are the plateau of the memory, the ones that fit the last cache the plateau of that.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from calc.units import GIB, MIB
from probes.harness import Bench, Case, Measurement, checked

SCALAR = 1.5
CACHES, CPU_CACHES = 8, 5  # the large size is at least this many last caches
CPU_LARGE_BYTES = 128 * MIB
CPU_QUICK_SWEEP = (MIB, 8 * MIB, 64 * MIB)
FLOAT_BYTES = 4


def large_bytes(bench: Bench) -> int:
    """Bytes that one call of the plateau cases moves."""
    cache = bench.device.cache_bytes()
    wanted = max(CPU_LARGE_BYTES, CPU_CACHES * cache) if bench.on_cpu else max(GIB, CACHES * cache)
    return min(wanted, bench.room_bytes())


def sweep_bytes(bench: Bench) -> tuple[int, ...]:
    """Sizes of the sweep: every doubling, or in quick every second one."""
    if bench.on_cpu and bench.quick:
        return CPU_QUICK_SWEEP
    largest = large_bytes(bench) if bench.quick else min(2 * GIB, bench.room_bytes())
    step = 4 if bench.quick else 2
    sizes, size = [], MIB
    while size < largest:
        sizes.append(size)
        size *= step
    return (*sizes, largest)


def cases(bench: Bench) -> list[Case]:
    """The kernels at the large size, then the sweep. Copy is apart: nothing in a model only copies."""
    size = large_bytes(bench)
    kernels = ("scale", "triad", "read") if bench.quick else ("scale", "triad", "read", "copy")
    found = [
        Case(
            name=f"{kernel} plateau",
            run=lambda kernel=kernel: _measure(bench, kernel, size),
            parameters={"kernel": kernel, "bytes": size, "sweep": False},
            essential=kernel in {"scale", "triad"},
        )
        for kernel in kernels
    ]
    found += [
        Case(
            name=f"scale {size // MIB} MiB",
            run=lambda size=size: _measure(bench, "scale", size),
            parameters={"kernel": "scale", "bytes": size, "sweep": True},
        )
        for size in sweep_bytes(bench)
    ]
    return found


def _measure(bench: Bench, kernel: str, size: int) -> Measurement:
    arrays = {"scale": 2, "copy": 2, "triad": 3, "read": 1}[kernel]
    count = max(1024, size // (arrays * FLOAT_BYTES))
    operands = [bench.randn(count) for _ in range(arrays)]
    call = _call(kernel, operands)
    error = _check(kernel, operands, call())
    timing = bench.time([call])
    moved = float(arrays * count * FLOAT_BYTES)
    return Measurement(
        value=moved / timing.median_s,
        unit="B/s",
        timing=timing,
        bytes_per_call=moved,
        error=error,
        extra={"best": moved / timing.best_s},
    )


def _call(kernel: str, operands: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    if kernel == "scale":
        source, target = operands
        return lambda: torch.mul(source, SCALAR, out=target)
    if kernel == "copy":
        source, target = operands
        return lambda: target.copy_(source)
    if kernel == "triad":
        first, second, target = operands
        return lambda: torch.add(first, second, alpha=SCALAR, out=target)
    (only,) = operands
    return only.sum


def _check(kernel: str, operands: list[torch.Tensor], got: torch.Tensor) -> float:
    if kernel == "read":
        exact = operands[0].double().sum() if got.device.type != "mps" else operands[0].cpu().double().sum()
        spread = float(operands[0].numel() ** 0.5)
        return checked(got.cpu().reshape(1) / spread, exact.cpu().reshape(1) / spread, tolerance=1.0)
    some = slice(0, 1024)
    first = operands[0][some].cpu()
    if kernel == "triad":
        expected = first + SCALAR * operands[1][some].cpu()
    else:
        expected = first * SCALAR if kernel == "scale" else first
    return checked(got[some].cpu(), expected, tolerance=1e-5)
