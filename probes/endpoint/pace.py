"""What the client itself costs: its event loop's lag while it measures, and its delay per token against a null server.

The null server is a process that writes ready-made chunks, each with the moment it was written; what passes until the client
has stamped it is the client's own (and the loopback's) share.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from calc.errors import ProbeError
from probes.endpoint.client import EndpointClient
from probes.endpoint.dialects import Api, Ask
from probes.endpoint.safety import Target

TICK_S = 0.005
LAG_LIMIT_S = 0.005  # at the 99th percentile; beyond, the client distorts what it measures. Source: practice of load generators
ROOT = Path(__file__).resolve().parents[2]
NULL_STREAM_S = 1.0


class LoopLag:
    """How late the event loop wakes a sleeper, sampled every 5 ms while in use."""

    def __init__(self) -> None:
        self.lags: list[float] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK_S)
            self.lags.append(max(0.0, time.perf_counter() - before - TICK_S))

    def quantile(self, share: float) -> float | None:
        return float(np.quantile(self.lags, share)) if self.lags else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCost:
    """The client's own share, seconds: per token against the null server at `streams` streams, and CPU per token."""

    streams: int
    tokens: int
    delay_p50_s: float
    delay_p99_s: float
    cpu_s: float

    def as_json(self) -> dict[str, Any]:
        return {
            "streams": self.streams,
            "tokens": self.tokens,
            "delay_p50_s": self.delay_p50_s,
            "delay_p99_s": self.delay_p99_s,
            "cpu_s": self.cpu_s,
        }


async def measure_client(
    *, streams: int, tokens: int = 50, gap_s: float = NULL_STREAM_S / 50, limit_s: float = 60.0
) -> ClientCost:
    """Follow `streams` streams of `tokens` chunks, one every `gap_s`, from a null server of our own on loopback."""
    server = subprocess.Popen(  # noqa: ASYNC220, S603 - our own module, before anything is measured
        [sys.executable, "-m", "probes.endpoint.null_server", str(limit_s + 30.0)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.PIPE,
    )
    try:
        port = await asyncio.wait_for(asyncio.to_thread(_port_of, server), 30.0)
        return await asyncio.wait_for(_follow(port, streams, tokens, gap_s), limit_s)
    except TimeoutError:
        raise ProbeError(
            "The client's own cost could not be measured in time.", next_step="Close other programs."
        ) from None
    finally:
        server.kill()
        server.wait()


def _port_of(server: subprocess.Popen[bytes]) -> int:
    line = server.stdout.readline() if server.stdout else b""
    if not line.strip().isdigit():
        raise ProbeError("The null server did not start.")
    return int(line)


async def _follow(port: int, streams: int, tokens: int, gap_s: float) -> ClientCost:
    target = Target(scheme="http", host="127.0.0.1", port=port, path="", address="127.0.0.1")
    delays: list[float] = []
    async with EndpointClient.open(target, Api.CHAT) as client:
        client.watch = _delays_into(delays)
        used = time.process_time()
        asks = (Ask(model=f"null-{gap_s}", prompt="null", max_tokens=tokens) for _ in range(streams))
        samples = await asyncio.gather(*(client.ask(ask, stage="null") for ask in asks))
        used = time.process_time() - used
    counted = sum(sample.output_tokens or 0 for sample in samples)
    if not counted or not delays:
        raise ProbeError("The null server sent nothing.")
    p50, p99 = (float(q) for q in np.quantile(delays, [0.5, 0.99]))
    return ClientCost(streams=streams, tokens=counted, delay_p50_s=p50, delay_p99_s=p99, cpu_s=used / counted)


def _delays_into(delays: list[float]) -> Any:
    """A watcher that reads the moment of writing out of each chunk; both processes read the same monotonic clock."""

    def watch(data: bytes, stamped: float) -> None:
        for piece in data.split(b'"sent":')[1:]:
            with suppress(ValueError):
                delays.append(max(0.0, stamped - float(piece.split(b"}", 1)[0])))

    return watch
