"""All-reduce among the GPUs of this machine: one process per GPU, by message size, queued and alone on an idle GPU.

The processes meet on loopback. A hang (peer-to-peer access behind an IOMMU is the usual cause) ends at the group's time
limit, which the parent enforces on the whole process group.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

from calc.units import GIB, KIB, MIB
from probes.harness import Bench, Case, Measurement, Timing

QUICK_BYTES = (8 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 64 * MIB)
FULL_BYTES = tuple(KIB << power for power in range(21))
WARM_UPS = 5
QUEUED = 10
TRIALS = 11
MEETING_S = 60
ELEMENT_BYTES = 2


def cases(bench: Bench) -> list[Case]:
    """One case per number of ranks (2, 4, 8 and all), each with every size: processes meet once."""
    count = _device_count(bench)
    ranks = sorted({n for n in (2, 4, 8, count) if 2 <= n <= count})
    if bench.quick:
        ranks = ranks[-1:]
    sizes = QUICK_BYTES if bench.quick else tuple(size for size in FULL_BYTES if size <= GIB)
    return [
        Case(
            name=f"{n} ranks",
            run=lambda n=n: run(bench.device.device.type, n, sizes),
            parameters={"ranks": n, "sizes": list(sizes)},
        )
        for n in ranks
    ]


def _device_count(bench: Bench) -> int:
    if bench.device.device.type == "cuda":
        return torch.cuda.device_count()
    return torch.xpu.device_count() if bench.device.device.type == "xpu" else 0


def run(device_type: str, ranks: int, sizes: tuple[int, ...]) -> Measurement:
    """Start `ranks` processes, let each size be reduced, and gather rank 0's times. The value is the best bus rate."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    multiprocessing.spawn(_rank, args=((device_type, port), ranks, sizes, answers), nprocs=ranks)
    rows: list[dict[str, Any]] = answers.get()
    best = max(row["bus_bytes_per_s"] for row in rows)
    return Measurement(value=best, unit="B/s", extra={"ranks": ranks, "rows": rows})


def _rank(rank: int, where: tuple[str, int], ranks: int, sizes: tuple[int, ...], answers: Any) -> None:
    device_type, port = where
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    backend = {"cuda": "nccl", "xpu": "xccl"}.get(device_type, "gloo")
    if device_type == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, rank=rank, world_size=ranks, timeout=dt.timedelta(seconds=MEETING_S))
    device = torch.device(device_type, rank) if device_type != "cpu" else torch.device("cpu")
    try:
        rows = [_size(device, ranks, size) for size in sizes]
        if rank == 0:
            answers.put(rows)
    finally:
        dist.destroy_process_group()


def _size(device: torch.device, ranks: int, size: int) -> dict[str, Any]:
    tensor = torch.ones(size // ELEMENT_BYTES, dtype=torch.bfloat16, device=device)
    dist.all_reduce(tensor)
    if float(tensor[0]) != float(ranks):
        raise RuntimeError(f"the sum over {ranks} ranks came out as {float(tensor[0])}")
    tensor.zero_()
    for _ in range(WARM_UPS):
        dist.all_reduce(tensor)
    queued = _timing(device, tensor, QUEUED)
    alone = _timing(device, tensor, 1)
    bus = 2 * (ranks - 1) / ranks * size / queued.median_s
    return {
        "bytes": size,
        "queued": queued.as_json(),
        "alone": alone.as_json(),
        "bus_bytes_per_s": bus,
    }


def _timing(device: torch.device, tensor: torch.Tensor, calls: int) -> Timing:
    times = []
    for _ in range(TRIALS):
        _wait(device)
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(tensor)
        _wait(device)
        times.append((time.perf_counter() - start) / calls)
    times.sort()
    return Timing(
        median_s=times[TRIALS // 2],
        p10_s=times[1],
        p90_s=times[-2],
        best_s=times[0],
        samples=TRIALS,
        mode="queued" if calls > 1 else "alone",
    )


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)
