"""One server, first come first served: M/M/1, M/D/1, M/G/1 with means and exact quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, expm1
from typing import Any, ClassVar

import numpy as np

from calc.queueing.base import OneServer, TailQueue
from calc.queueing.closed_forms import (
    md1_mean_wait_s,
    mg1_mean_wait_s,
    mm1_mean_time_s,
    mm1_mean_wait_s,
)
from calc.queueing.laplace import inverted
from calc.queueing.service import FixedService, ObservedService, Service


@dataclass(frozen=True, slots=True, kw_only=True)
class MM1(OneServer):
    """Poisson arrivals, exponential service, one server.

    Source: Kleinrock 1975, Queueing Systems I, section 3.2. Ignores: bursts, even or heavy-tailed service, batching.
    """

    name: ClassVar[str] = "M/M/1"
    holds: ClassVar[str] = "Poisson arrivals, exponential service times, one request at a time"

    @property
    def mean_wait_s(self) -> float:
        return float(mm1_mean_wait_s(utilisation=self.utilisation, service_s=self.service_s))

    @property
    def mean_time_s(self) -> float:
        return float(mm1_mean_time_s(utilisation=self.utilisation, service_s=self.service_s))

    def _wait_tail(self, t_s: float) -> float:
        return self.utilisation * self._time_tail(t_s)

    def _time_tail(self, t_s: float) -> float:
        return exp(-t_s / self.mean_time_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class MD1(OneServer):
    """Poisson arrivals, one server, every service takes the same time.

    The wait's distribution is summed from positive terms only, so that it keeps its digits however long the wait is;
    past `LEVELS` services its tail is exponential to the last bit.

    Source: Franx 2001 (Operations Research Letters 29) for one server; Tijms 2003, A First Course in Stochastic
    Models, section 9.2, for the tail. Ignores: bursts, service that varies, batching.
    """

    name: ClassVar[str] = "M/D/1"
    holds: ClassVar[str] = "Poisson arrivals, equal service times, one request at a time"

    @property
    def mean_wait_s(self) -> float:
        return float(md1_mean_wait_s(utilisation=self.utilisation, service_s=self.service_s))

    @property
    def mean_time_s(self) -> float:
        return self.mean_wait_s + self.service_s

    def _wait_tail(self, t_s: float) -> float:
        return _fixed_service_wait_tail(self.utilisation, t_s / self.service_s)

    def _time_tail(self, t_s: float) -> float:
        return self.wait_tail(t_s - self.service_s)


LEVELS = (
    64  # services after which the next term of the wait's tail is below 1e-16 of the first, or the tail is
)


FEW_TIMES = 32
"""Up to so many distinct service times their jumps in the distribution of the time are kept apart; more of them blur."""


def _fixed_service_wait_tail(rho: float, x: float) -> float:
    """P(wait > x services) of M/D/1."""
    if rho == 0.0:
        return 0.0
    if x >= LEVELS:
        decay = _decay_per_service(rho)
        return (1.0 - rho) / (rho * exp(decay) - 1.0) * exp(-decay * x)
    k = int(x) + 1
    waiting_at_most = _waiting_at_most(rho)[:k][::-1]
    mean = rho * (k - x)
    poisson = np.exp(-mean) * np.cumprod(np.concatenate(([1.0], mean / np.arange(1, k))))
    return 1.0 - float(waiting_at_most @ poisson)


@lru_cache(maxsize=256)
def _waiting_at_most(rho: float) -> Any:
    """P(at most m wait), m = 0 ... LEVELS - 1, in M/D/1, by level crossing: every term is positive."""
    none = exp(-rho)
    counts = none * np.cumprod(np.concatenate(([1.0], rho / np.arange(1, LEVELS + 60))))
    more_than = np.cumsum(counts[::-1])[::-1]  # P(arrivals in a service >= m)
    system = np.zeros(LEVELS + 1)
    system[0] = 1.0 - rho
    for j in range(1, LEVELS + 1):
        up = system[0] * more_than[j] + float(system[1:j] @ more_than[j:1:-1])
        system[j] = up / none
    return np.cumsum(system)[1:]


@lru_cache(maxsize=256)
def _decay_per_service(rho: float) -> float:
    """The positive root y of rho·(e^y - 1) = y: how fast the tail of M/D/1 falls per service time."""
    y = 2.0 * (1.0 - rho) / rho  # above the root, because e^y - 1 > y + y²/2
    for _ in range(100):
        step = (rho * expm1(y) - y) / (rho * exp(y) - 1.0) if y < 600 else y / 2.0
        y -= step
        if abs(step) <= 1e-15 * y:
            break
    return y


@dataclass(frozen=True, slots=True, kw_only=True)
class MG1(TailQueue):
    """Poisson arrivals, any service, one server: prefill as a queue, where the work of a prompt is its length.

    Means by Pollaczek and Khinchine; quantiles by inverting the transform of the wait.

    Source: Kleinrock 1975, Queueing Systems I, sections 5.6 and 5.7. Ignores: bursts, batching; with observed
    (discrete) service the tail is good to about 1e-4.
    """

    name: ClassVar[str] = "M/G/1"
    holds: ClassVar[str] = (
        "Poisson arrivals, independent service times of any distribution, one request at a time"
    )

    service: Service

    @property
    def utilisation(self) -> float:
        return self.arrivals_per_s * self.service.mean_s

    @property
    def mean_wait_s(self) -> float:
        return float(
            mg1_mean_wait_s(
                utilisation=self.utilisation, service_s=self.service.mean_s, service_scv=self.service.scv
            )
        )

    @property
    def mean_time_s(self) -> float:
        return self.mean_wait_s + self.service.mean_s

    def _wait_transform(self, s: Any) -> Any:
        return (1.0 - self.utilisation) * s / (s - self.arrivals_per_s * (1.0 - self.service.transform(s)))

    def _wait_tail(self, t_s: float) -> float:
        if t_s == 0.0:
            return self.utilisation
        if isinstance(self.service, FixedService):
            return _fixed_service_wait_tail(self.utilisation, t_s / self.service.mean_s)
        return inverted(lambda s: (1.0 - self._wait_transform(s)) / s, t_s)

    def _time_tail(self, t_s: float) -> float:
        if t_s == 0.0:
            return 1.0
        if isinstance(self.service, FixedService):
            return self.wait_tail(t_s - self.service.mean_s)
        if isinstance(self.service, ObservedService) and len(self.service.times_s) <= FEW_TIMES:
            pairs = zip(self.service.times_s, self.service.weights, strict=True)
            return sum(weight * self.wait_tail(t_s - time) for time, weight in pairs)
        return inverted(lambda s: (1.0 - self._wait_transform(s) * self.service.transform(s)) / s, t_s)
