"""One way to time everything: cold operands by rotation, graphs where the device has them, medians with percentiles.

Operands are random-normal (zeros draw less power and run faster than any model would) and rotate past the last cache,
because a decode step reads its weights cold. On CUDA and ROCm the calls of one rotation are captured in a graph and
replayed between two events; where capture fails the calls are queued behind a sleeping kernel, and the mode is recorded.
Elsewhere the host's clock runs around a synchronised batch of calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from probes.registry import QUICK
from probes.torch_device import TorchDevice

CACHES_TO_EXCEED = 5  # a rotation reads this many last caches before it comes back to the same bytes
UNSTABLE = 1.10  # p90 over p10 above which a timing is tagged
GRAPH_CALLS = 10  # calls in a graph at least, so that its own start is shared out
WARM_UP_S = 0.025
SAMPLE_S = 0.1
FEWEST_SAMPLES, MOST_SAMPLES = 10, 200
FEWEST_SLOW_SAMPLES = 3  # of calls that take longer than all of SAMPLE_S
SHORTEST_HOST_SAMPLE_S = 0.002  # a host clock around less than this measures the clock
SHORTEST_MPS_SAMPLE_S = 0.02
MEMORY_SHARE = 0.25  # of the free memory that one case may take
QUEUE_CYCLES = 20_000_000  # about 10 ms of a sleeping kernel, while the host queues behind it
SEED = 20_251


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds per call over `samples`: median, 10th and 90th percentile, the best; and how they were taken."""

    median_s: float
    p10_s: float
    p90_s: float
    best_s: float
    samples: int
    mode: str

    @property
    def tags(self) -> tuple[str, ...]:
        return ("unstable",) if self.p90_s > UNSTABLE * self.p10_s else ()

    def as_json(self) -> dict[str, Any]:
        return {
            "median_s": self.median_s,
            "p10_s": self.p10_s,
            "p90_s": self.p90_s,
            "best_s": self.best_s,
            "samples": self.samples,
            "mode": self.mode,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a case gives: one value in a unit (bytes/s, FLOP/s, s), its timing, and what was counted to get it."""

    value: float
    unit: str
    timing: Timing | None = None
    bytes_per_call: float | None = None
    flop_per_call: float | None = None
    error: float | None = None  # largest difference to fp32, relative to the largest value
    tags: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        tags = (*self.tags, *(self.timing.tags if self.timing else ()))
        return {
            "value": self.value,
            "unit": self.unit,
            "timing": self.timing.as_json() if self.timing else None,
            "bytes_per_call": self.bytes_per_call,
            "flop_per_call": self.flop_per_call,
            "error": self.error,
            "tags": list(tags),
            "extra": self.extra,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to measure: a name that is unique in its probe, its parameters, and the call that measures it.

    `essential`: measured even when the probe's time is spent, because a profile needs it.
    """

    name: str
    run: Callable[[], Measurement]
    parameters: dict[str, Any] = field(default_factory=dict)
    essential: bool = False


class WrongAnswerError(Exception):
    """A kernel computed something else than it should have: its speed means nothing."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """What a probe is given: the device, how thorough to be, and the timing."""

    device: TorchDevice
    depth: str = QUICK
    model: dict[str, Any] | None = None
    sample_s: float = SAMPLE_S
    _random: torch.Tensor | None = None

    @property
    def quick(self) -> bool:
        return self.depth == QUICK

    @property
    def on_cpu(self) -> bool:
        return self.device.kind == "cpu"

    @property
    def longest_call_s(self) -> float:
        """A case whose one call would take longer is left out: the point of a probe is to end."""
        if self.on_cpu:
            return 0.12 if self.quick else 0.6
        return 1.0

    def room_bytes(self, share: float = MEMORY_SHARE) -> int:
        """Bytes that one case may take."""
        return int(share * self.device.free_bytes())

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        """Random-normal values on the device, cut from one seeded pool: making them must not take longer than timing."""
        count = math.prod(shape)
        pool = self._pool()
        repeats = -(-count // pool.numel())
        values = pool.repeat(repeats)[:count] if repeats > 1 else pool[:count]
        return (values * scale).reshape(shape).to(dtype)

    def _pool(self) -> torch.Tensor:
        if self._random is None:
            generator = torch.Generator().manual_seed(SEED)
            size = 1_000_003  # prime, so that rows of a matrix never repeat in step
            self._random = torch.randn(size, generator=generator).to(self.device.device)
        return self._random

    def copies(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Enough copies of a read-only operand that one rotation exceeds the last cache five times."""
        size = tensor.numel() * tensor.element_size()
        wanted = 1 if size > CACHES_TO_EXCEED * self.device.cache_bytes() else self.rotation(size)
        affordable = max(1, int(self.room_bytes() // max(size, 1)))
        return [tensor, *(tensor.clone() for _ in range(min(wanted, affordable) - 1))]

    def rotation(self, size: int) -> int:
        """How many operands of `size` bytes exceed the last cache five times."""
        return min(4096, math.ceil(CACHES_TO_EXCEED * self.device.cache_bytes() / max(size, 1)) + 1)

    def once_s(self, call: Callable[[], object]) -> float:
        """Seconds of one call by the host's clock, after one that warms up: for estimates."""
        call()
        return self._host_once([call])

    def time(self, calls: Sequence[Callable[[], object]]) -> Timing:
        """Time one rotation of calls again and again; seconds are per call."""
        if self.device.has_graphs:
            try:
                return self._time_graph(calls)
            except RuntimeError as error:
                if isinstance(error, (torch.OutOfMemoryError, _accelerator_error())):
                    raise
                self.device.synchronize()
                return self._time_events(calls)
        return self._time_host(calls)

    def _time_graph(self, calls: Sequence[Callable[[], object]]) -> Timing:
        rounds = max(1, math.ceil(GRAPH_CALLS / len(calls)))
        stream = torch.cuda.Stream(self.device.device)
        stream.wait_stream(torch.cuda.current_stream(self.device.device))
        with torch.cuda.stream(stream):
            for _ in range(3):
                for call in calls[:3]:
                    call()
        torch.cuda.current_stream(self.device.device).wait_stream(stream)
        self.device.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(rounds):
                for call in calls:
                    call()
        try:
            return self._events(graph.replay, rounds * len(calls), "graph")
        finally:
            graph.reset()

    def _time_events(self, calls: Sequence[Callable[[], object]]) -> Timing:
        """Eager: the queue is filled behind a sleeping kernel, so that the host's pace is not in the time."""
        for call in calls[:3]:
            call()

        def rotation() -> None:
            for call in calls:
                call()

        return self._events(rotation, len(calls), "eager", asleep=True)

    def _events(self, run: Callable[[], object], calls: int, mode: str, *, asleep: bool = False) -> Timing:
        def once() -> float:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if asleep:
                torch.cuda._sleep(QUEUE_CYCLES)  # noqa: SLF001 - torch has no public way to hold a stream
            first.record()
            run()
            last.record()
            last.synchronize()
            return first.elapsed_time(last) / 1e3

        return self._sampled(once, calls, mode)

    def _time_host(self, calls: Sequence[Callable[[], object]]) -> Timing:
        shortest = SHORTEST_MPS_SAMPLE_S if self.device.kind == "mps" else SHORTEST_HOST_SAMPLE_S
        order = list(calls)
        estimate = self.once_s(order[0])
        per_sample = max(1, min(len(order) * 64, math.ceil(shortest / max(estimate, 1e-7))))
        position = 0

        def once() -> float:
            nonlocal position
            batch = [order[(position + i) % len(order)] for i in range(per_sample)]
            position += per_sample
            return self._host_once(batch)

        return self._sampled(once, per_sample, "host")

    def _host_once(self, batch: Sequence[Callable[[], object]]) -> float:
        self.device.synchronize()
        start = time.perf_counter()
        for call in batch:
            call()
        self.device.synchronize()
        return time.perf_counter() - start

    def _sampled(self, once: Callable[[], float], calls: int, mode: str) -> Timing:
        started = time.perf_counter()
        first = once()
        spent = first
        while spent < min(WARM_UP_S, 3 * first) and time.perf_counter() - started < self.sample_s:
            spent += once()
        fewest = FEWEST_SAMPLES if first * FEWEST_SAMPLES <= 2 * self.sample_s else FEWEST_SLOW_SAMPLES
        samples: list[float] = []
        while len(samples) < fewest or (sum(samples) < self.sample_s and len(samples) < MOST_SAMPLES):
            samples.append(once())
        per_call = np.array(samples) / calls
        low, middle, high = np.quantile(per_call, [0.1, 0.5, 0.9])
        return Timing(
            median_s=float(middle),
            p10_s=float(low),
            p90_s=float(high),
            best_s=float(per_call.min()),
            samples=len(samples),
            mode=mode,
        )


def difference(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference relative to the largest expected value."""
    scale = float(expected.abs().max()) or 1.0
    return float((got.float() - expected.float()).abs().max()) / scale


def checked(got: torch.Tensor, expected: torch.Tensor, *, tolerance: float) -> float:
    """The difference of an answer to fp32, or `WrongAnswerError`: a kernel that did nothing is fast."""
    error = difference(got, expected)
    if not error <= tolerance:  # also refuses nan
        raise WrongAnswerError(f"the result differs from fp32 by {error:.2g} of its largest value")
    return error


def _accelerator_error() -> type[Exception]:
    """The error after which a CUDA context is beyond use; older torch has none of its own."""
    found = getattr(torch, "AcceleratorError", None)
    return found if isinstance(found, type) else torch.OutOfMemoryError
