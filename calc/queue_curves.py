"""Latency against utilisation for the queues that a reader should know apart, and simulations of the same queues.

Times of all of them scale with the service time, so each curve is worked out once for a service of one second.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import inf

import numpy as np

from calc.queueing import (
    MD1,
    MM1,
    LoadDependentSharing,
    MMc,
    Simulated,
    batch_means,
    simulate_line,
    simulate_sharing,
)

MOST_UTILISED = 0.99
MOST_SHARED = 0.96
"""Utilisation up to which sharing is followed: there its mean leaves a chart that shows 25 service times."""
IDLE = 1e-6  # arrivals a service time that stand for none, where a formula divides by them
POINTS, STEEP_POINTS = 31, 13
SHARED_STEEP_POINTS = 5  # each of them is a chain of hundreds of states
WARM_UP_SHARE = 0.1
MOST_REPLICAS = 100_000
PERCENTILES = (95.0, 99.0)


class QueueKind(StrEnum):
    """Queues by what differs: how even the work is, how many servers share a line, whether requests share a server."""

    MM1 = "M/M/1: random work, one line per replica"
    MD1 = "M/D/1: even work, one line per replica"
    MMC = "M/M/c: random work, one line for all replicas"
    SHARING = "sharing: random work, all requests at once"

    @property
    def symbol(self) -> str:
        """The name in short."""
        return self.split(":", maxsplit=1)[0]


TimedQueue = MM1 | MD1 | MMc | LoadDependentSharing


def queue_of(kind: QueueKind, *, load: float, service_s: float, servers: int = 1) -> TimedQueue:
    """The queue of `kind` at a utilisation; `servers` matters where they share one line.

    Where each replica has a line of its own, traffic is split at random, so that one replica stands for all.
    """
    if kind is QueueKind.MMC:
        return MMc(arrivals_per_s=load * servers / service_s, service_s=service_s, servers=servers)
    if kind is QueueKind.MD1:
        return MD1(arrivals_per_s=load / service_s, service_s=service_s)
    if kind is QueueKind.SHARING:
        rate = max(load, IDLE) / service_s
        return LoadDependentSharing(arrivals_per_s=rate, completions_per_s=(1.0 / service_s,))
    return MM1(arrivals_per_s=load / service_s, service_s=service_s)


def quantiles_s(queue: TimedQueue) -> tuple[float, ...]:
    """The p95 and p99 of the time in the system; infinite when saturated."""
    if isinstance(queue, LoadDependentSharing):
        return queue.time_quantiles_s(PERCENTILES)
    return tuple(queue.time_quantile_s(percentile) for percentile in PERCENTILES)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCurve:
    """Time in the system in seconds against utilisation: mean, p95 and p99."""

    kind: QueueKind
    servers: int
    utilisation: tuple[float, ...]
    mean_s: tuple[float, ...]
    p95_s: tuple[float, ...]
    p99_s: tuple[float, ...]

    def rows(self) -> list[dict[str, float | str]]:
        """One row a point."""
        names = ("utilisation", "mean_s", "p95_s", "p99_s")
        points = zip(self.utilisation, self.mean_s, self.p95_s, self.p99_s, strict=True)
        return [{"queue": self.kind.symbol, **dict(zip(names, point, strict=True))} for point in points]


def queue_curve(kind: QueueKind, *, service_s: float, servers: int = 1) -> QueueCurve:
    """The hockey stick from an idle server to one that is hardly ever idle."""
    load, mean, p95, p99 = _unit_curve(kind, servers if kind is QueueKind.MMC else 1)
    return QueueCurve(
        kind=kind,
        servers=servers,
        utilisation=load,
        mean_s=tuple(value * service_s for value in mean),
        p95_s=tuple(value * service_s for value in p95),
        p99_s=tuple(value * service_s for value in p99),
    )


@lru_cache(maxsize=128)
def _unit_curve(kind: QueueKind, servers: int) -> tuple[tuple[float, ...], ...]:
    """(utilisation, mean, p95, p99) for a service of one second."""
    most, steep = MOST_UTILISED, STEEP_POINTS
    if kind is QueueKind.SHARING:
        most, steep = MOST_SHARED, SHARED_STEEP_POINTS
    loads = np.concatenate((np.linspace(0.0, 0.9, POINTS)[:-1], np.linspace(0.9, most, steep)))
    queues = [queue_of(kind, load=float(load), service_s=1.0, servers=servers) for load in loads]
    tails = [quantiles_s(queue) for queue in queues]
    return (
        tuple(loads.tolist()),
        tuple(queue.mean_time_s for queue in queues),
        tuple(p95 for p95, _ in tails),
        tuple(p99 for _, p99 in tails),
    )


@lru_cache(maxsize=256)
def replicas_for(kind: QueueKind, *, arrivals_per_s: float, service_s: float, limit_s: float) -> float:
    """The smallest number of replicas whose p95 keeps the limit; infinite if the service alone misses it."""

    def holds(replicas: int) -> bool:
        load = arrivals_per_s * service_s / replicas
        queue = queue_of(kind, load=load, service_s=service_s, servers=replicas)
        return not queue.saturated and quantiles_s(queue)[0] <= limit_s

    if quantiles_s(queue_of(kind, load=0.0, service_s=service_s))[0] > limit_s:
        return inf
    high = max(1, int(arrivals_per_s * service_s))
    low = high - 1
    while not holds(high):
        low, high = high, 2 * high
        if high > MOST_REPLICAS:
            return inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return float(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPoint:
    """What a simulation of one load measured, beside the formula's mean.

    `standard_error_s`: of the mean, by batch means. `arrivals_per_s`, `in_system`: measured apart from each other, so
    that Little's law can be looked at.
    """

    utilisation: float
    requests: int
    mean_s: float
    standard_error_s: float
    p95_s: float
    p99_s: float
    formula_mean_s: float
    arrivals_per_s: float
    in_system: float
    whole_mean_s: float

    @property
    def errors_apart(self) -> float:
        """Distance of the mean from the formula, in standard errors."""
        return abs(self.mean_s - self.formula_mean_s) / self.standard_error_s

    @property
    def by_littles_law(self) -> float:
        """Requests in the system by Little's law, from the rate and the mean time that were measured."""
        return self.arrivals_per_s * self.whole_mean_s


def simulated_points(
    kind: QueueKind,
    *,
    service_s: float,
    loads: tuple[float, ...],
    requests: int,
    seed: int,
    servers: int = 1,
) -> tuple[SimulatedPoint, ...]:
    """The queue simulated at each load; mean and percentiles leave out the first tenth as warm-up."""
    return tuple(
        _simulated(kind, load, service_s=service_s, servers=servers, requests=requests, seed=seed + number)
        for number, load in enumerate(loads)
    )


def _simulated(
    kind: QueueKind, load: float, *, service_s: float, servers: int, requests: int, seed: int
) -> SimulatedPoint:
    queue = queue_of(kind, load=load, service_s=service_s, servers=servers)
    ran = _run(kind, queue.arrivals_per_s, service_s, servers=servers, seed=seed, requests=requests)
    times = ran.times_s[int(requests * WARM_UP_SHARE) :]
    found = batch_means(times)
    p95, p99 = np.quantile(times, [0.95, 0.99])
    return SimulatedPoint(
        utilisation=load,
        requests=requests,
        mean_s=found.mean,
        standard_error_s=found.standard_error,
        p95_s=float(p95),
        p99_s=float(p99),
        formula_mean_s=queue.mean_time_s,
        arrivals_per_s=ran.arrivals_per_s,
        in_system=ran.mean_in_system,
        whole_mean_s=ran.mean_time_s,
    )


def _run(
    kind: QueueKind, rate_per_s: float, service_s: float, *, servers: int, seed: int, requests: int
) -> Simulated:
    random = np.random.default_rng(seed)
    gaps = random.exponential(1.0 / rate_per_s, requests)
    if kind is QueueKind.MD1:
        return simulate_line(gaps_s=gaps, services_s=np.full(requests, service_s))
    work = random.exponential(service_s, requests)
    if kind is QueueKind.SHARING:
        return simulate_sharing(gaps_s=gaps, sizes=work, rate_per_s=lambda _running: 1.0)
    return simulate_line(gaps_s=gaps, services_s=work, servers=servers if kind is QueueKind.MMC else 1)
