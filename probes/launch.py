"""What starting a kernel costs: the host's time per call, an eager operation on the device, and a node of a graph."""

from __future__ import annotations

import time

import torch

from probes.harness import Bench, Case, Measurement, Timing

CALLS = 500
REPEATS = 11


def cases(bench: Bench) -> list[Case]:
    """Host and eager everywhere; graphs where the device has them."""
    found = [
        Case(name="host call", run=lambda: _measure(bench, "host"), parameters={"way": "host"}),
        Case(name="eager", run=lambda: _measure(bench, "eager"), parameters={"way": "eager"}, essential=True),
    ]
    if bench.device.has_graphs:
        found += [
            Case(
                name="graph node",
                run=lambda: _graph(bench, CALLS),
                parameters={"way": "graph"},
                essential=True,
            ),
            Case(name="graph replay", run=lambda: _graph(bench, 1), parameters={"way": "replay"}),
        ]
    return found


def _measure(bench: Bench, way: str) -> Measurement:
    """Seconds per one-element sum: `host` stops the clock when all are queued, `eager` when all have run."""
    one = torch.zeros(1, device=bench.device.device)
    times = []
    for _ in range(REPEATS + 1):
        bench.device.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            one.add_(1.0)
        queued = time.perf_counter()
        bench.device.synchronize()
        times.append(((queued if way == "host" else time.perf_counter()) - start) / CALLS)
    return _seconds(times[1:], "host")


def _graph(bench: Bench, nodes: int) -> Measurement:
    """Seconds per node of a graph of one-element sums, or of one replay with its wait."""
    one = torch.zeros(1, device=bench.device.device)
    stream = torch.cuda.Stream(bench.device.device)
    with torch.cuda.stream(stream):
        for _ in range(3):
            one.add_(1.0)
    bench.device.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(nodes):
            one.add_(1.0)
    times = []
    for _ in range(REPEATS + 1):
        bench.device.synchronize()
        start = time.perf_counter()
        graph.replay()
        bench.device.synchronize()
        times.append((time.perf_counter() - start) / nodes)
    graph.reset()
    return _seconds(times[1:], "graph")


def _seconds(times: list[float], mode: str) -> Measurement:
    ordered = sorted(times)
    last = len(ordered) - 1
    timing = Timing(
        median_s=ordered[last // 2],
        p10_s=ordered[round(0.1 * last)],
        p90_s=ordered[round(0.9 * last)],
        best_s=ordered[0],
        samples=len(ordered),
        mode=mode,
    )
    return Measurement(value=timing.median_s, unit="s", timing=timing)
