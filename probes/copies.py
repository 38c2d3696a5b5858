"""Copies between host and device, pinned and pageable, each way and both at once."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calc.units import GIB, KIB, MIB
from probes.harness import Bench, Case, Measurement, Timing

QUICK_BYTES = (4 * KIB, 256 * MIB)
FULL_BYTES = (4 * KIB, 16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB, 256 * MIB, GIB)
BOTH_WAYS_BYTES = 256 * MIB
SAMPLES = 16


def cases(bench: Bench) -> list[Case]:
    """Nothing for devices that share the host's memory."""
    if bench.device.facts().get("integrated"):
        return []
    sizes = [size for size in (QUICK_BYTES if bench.quick else FULL_BYTES) if size <= bench.room_bytes()]
    found = [
        Case(
            name=f"{direction} {memory} {size // KIB} KiB",
            run=lambda direction=direction, memory=memory, size=size: _measure(
                bench, direction, memory, size
            ),
            parameters={"direction": direction, "memory": memory, "bytes": size},
        )
        for size in sizes
        for direction in ("to device", "to host")
        for memory in ("pinned", "pageable")
    ]
    if not bench.quick and bench.device.has_graphs:
        found.append(
            Case(
                name="both ways pinned",
                run=lambda: _both(bench),
                parameters={"direction": "both", "memory": "pinned", "bytes": BOTH_WAYS_BYTES},
            )
        )
    return found


def _measure(bench: Bench, direction: str, memory: str, size: int) -> Measurement:
    host = torch.ones(size, dtype=torch.uint8, pin_memory=memory == "pinned")
    there = torch.zeros(size, dtype=torch.uint8, device=bench.device.device)
    target, source = (there, host) if direction == "to device" else (host, there)
    if direction == "to host":
        there.fill_(1)
    timing = _timed(bench, lambda: target.copy_(source, non_blocking=memory == "pinned"))
    if int(target[-1]) != 1:
        raise RuntimeError("a copy did not arrive")
    return Measurement(value=size / timing.median_s, unit="B/s", timing=timing, bytes_per_call=float(size))


def _both(bench: Bench) -> Measurement:
    """Two streams, one each way; bytes of both count."""
    size = BOTH_WAYS_BYTES
    hosts = [torch.ones(size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    theirs = [torch.zeros(size, dtype=torch.uint8, device=bench.device.device) for _ in range(2)]
    streams = [torch.cuda.Stream(bench.device.device) for _ in range(2)]

    def both() -> None:
        with torch.cuda.stream(streams[0]):
            theirs[0].copy_(hosts[0], non_blocking=True)
        with torch.cuda.stream(streams[1]):
            hosts[1].copy_(theirs[1], non_blocking=True)

    timing = _timed(bench, both)
    return Measurement(value=2 * size / timing.median_s, unit="B/s", timing=timing, bytes_per_call=2.0 * size)


def _timed(bench: Bench, copy: Callable[[], object]) -> Timing:
    times = sorted(bench.once_s(copy) for _ in range(SAMPLES))
    return Timing(
        median_s=times[SAMPLES // 2],
        p10_s=times[SAMPLES // 10],
        p90_s=times[SAMPLES * 9 // 10],
        best_s=times[0],
        samples=SAMPLES,
        mode="host",
    )
