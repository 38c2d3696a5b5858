"""Small simulations of the queues that have formulas: dots to set beside the curves, from random numbers given in.

`calc.simulation` is the simulator of serving engines; these know nothing of tokens or caches.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np

from calc.arrays import not_negative, positive_finite
from calc.errors import InputError
from calc.queueing.base import check_percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What happened to each request, in the order of arrival; seconds."""

    arrivals_s: Any
    waits_s: Any
    times_s: Any

    @property
    def mean_wait_s(self) -> float:
        return float(np.mean(self.waits_s))

    @property
    def mean_time_s(self) -> float:
        return float(np.mean(self.times_s))

    def time_quantile_s(self, percentile: float) -> float:
        """The time that `percentile` per cent of the requests did not exceed."""
        return float(np.quantile(self.times_s, check_percentile(percentile), method="inverted_cdf"))

    @property
    def arrivals_per_s(self) -> float:
        """Requests per second, over the time until the last one left."""
        return float(np.size(self.times_s)) / self._horizon_s

    @property
    def mean_in_system(self) -> float:
        """Mean number in the system over time, counted at arrivals and departures: Little's law is not used."""
        departures = self.arrivals_s + self.times_s
        moments = np.concatenate((self.arrivals_s, departures))
        change = np.concatenate((np.ones(departures.size), -np.ones(departures.size)))
        order = np.argsort(moments, kind="stable")
        number = np.cumsum(change[order])
        return float(number[:-1] @ np.diff(moments[order])) / self._horizon_s

    @property
    def _horizon_s(self) -> float:
        return float(np.max(self.arrivals_s + self.times_s))


def simulate_line(*, gaps_s: Any, services_s: Any, servers: int = 1) -> Simulated:
    """First come first served over `servers`: the request after gap i needs services_s[i].

    Source: Kiefer and Wolfowitz 1955; with one server, Lindley 1952, as the running minimum of a random walk.
    """
    gaps, services = _pair(gaps_s, services_s)
    arrivals = np.cumsum(gaps)
    if servers == 1:
        walk = np.concatenate(([0.0], np.cumsum(services[:-1] - gaps[1:])))
        waits = walk - np.minimum.accumulate(np.minimum(walk, 0.0))
        return Simulated(arrivals_s=arrivals, waits_s=waits, times_s=waits + services)
    positive_finite(servers=servers)
    free = [0.0] * servers
    waits = np.empty_like(services)
    for i, (arrival, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        start = max(arrival, free[0])
        heapq.heapreplace(free, start + service)
        waits[i] = start - arrival
    return Simulated(arrivals_s=arrivals, waits_s=waits, times_s=waits + services)


def simulate_sharing(
    *, gaps_s: Any, sizes: Any, rate_per_s: Callable[[int], float], slots: int | None = None
) -> Simulated:
    """Requests that share `rate_per_s(n)` evenly while n run, at most `slots` of them; the others wait in order.

    `sizes` is the work of each, in units of which the rate completes so many per second.

    Source: every running request has had the same work since it came, so the next to end is the one that was nearest to
    its end when it came (virtual time).
    """
    gaps, work = _pair(gaps_s, sizes)
    arrivals = np.cumsum(gaps)
    waits, times = np.zeros_like(work), np.empty_like(work)
    running: list[tuple[float, int]] = []
    line: deque[int] = deque()
    most = inf if slots is None else slots
    now = had = 0.0  # had: work that each running request got since the start
    coming = 0
    while coming < work.size or running:
        pace = rate_per_s(len(running)) / len(running) if running else 0.0
        ends = now + (running[0][0] - had) / pace if running else inf
        comes = float(arrivals[coming]) if coming < work.size else inf
        event = min(ends, comes)
        had, now = had + pace * (event - now), event
        if ends <= comes:
            _, done = heapq.heappop(running)
            times[done] = now - arrivals[done]
            if line:
                next_in_line = line.popleft()
                waits[next_in_line] = now - arrivals[next_in_line]
                heapq.heappush(running, (had + float(work[next_in_line]), next_in_line))
            continue
        if len(running) < most:
            heapq.heappush(running, (had + float(work[coming]), coming))
        else:
            line.append(coming)
        coming += 1
    return Simulated(arrivals_s=arrivals, waits_s=waits, times_s=times)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanWithError:
    """A mean, and the standard error that neighbours who resemble each other leave it with."""

    mean: float
    standard_error: float


def batch_means(values: Any, *, batches: int = 20) -> MeanWithError:
    """The mean of a correlated series with its standard error, from the means of `batches` long stretches.

    Source: Law and Kelton, Simulation Modeling and Analysis, section 9.5.3. Ignores: correlation between stretches; take
    long ones.
    """
    array = np.asarray(values, dtype=float).ravel()
    if not 2 <= batches <= array.size:
        raise InputError("batches", batches, f"it must be from 2 to the number of values ({array.size})")
    means = np.array([part.mean() for part in np.array_split(array, batches)])
    return MeanWithError(mean=float(array.mean()), standard_error=float(means.std(ddof=1)) / sqrt(batches))


def _pair(gaps_s: Any, work: Any) -> tuple[Any, Any]:
    gaps, needs = np.asarray(gaps_s, dtype=float), np.asarray(work, dtype=float)
    if gaps.ndim != 1 or gaps.shape != needs.shape or gaps.size == 0:
        raise InputError("gaps_s", gaps.shape, f"give one gap for each of the {needs.size} requests")
    not_negative(gaps_s=gaps, work=needs)
    return gaps, needs
