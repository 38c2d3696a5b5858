"""Several servers, or room for so many and no more: M/M/c (Erlang C) and M/M/1/K."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, expm1, inf
from typing import Any, ClassVar

import numpy as np

from calc.arrays import not_negative, positive_finite
from calc.errors import InputError
from calc.queueing.base import OneServer, TailQueue, check_percentile, quantile

MAX_SERVERS = 1_000_000
MAX_CAPACITY = 1_000_000


def erlang_b(*, offered_load: float, servers: int) -> float:
    """The share of requests lost when `servers` are all there is and nobody waits; `offered_load` = λ·S.

    Source: Erlang 1917, by the recursion B_c = a·B_{c-1} / (c + a·B_{c-1}), which keeps its digits. Ignores: nothing
    about the service but its mean; arrivals are Poisson.
    """
    not_negative(offered_load=offered_load)
    whole_number("servers", servers, MAX_SERVERS)
    lost = 1.0
    for c in range(1, servers + 1):
        lost = offered_load * lost / (c + offered_load * lost)
    return lost


def erlang_c(*, offered_load: float, servers: int) -> float:
    """The chance to wait in M/M/c, C = B / (1 - ρ·(1 - B)); 1 when saturated.

    Source: Erlang 1917; Kleinrock 1975, Queueing Systems I, section 3.5. Ignores: bursts, service that is not
    exponential.
    """
    rho = offered_load / whole_number("servers", servers, MAX_SERVERS)
    if rho >= 1.0:
        return 1.0
    lost = erlang_b(offered_load=offered_load, servers=servers)
    return lost / (1.0 - rho * (1.0 - lost))


@dataclass(frozen=True, slots=True, kw_only=True)
class MMc(TailQueue):
    """Poisson arrivals, exponential service, `servers` that share one line.

    Source: Kleinrock 1975, Queueing Systems I, section 3.5. Ignores: bursts, service that is not exponential. Not for
    the slots of continuous batching: those slow each other down (`sharing`).
    """

    name: ClassVar[str] = "M/M/c"
    holds: ClassVar[str] = (
        "Poisson arrivals, exponential service, servers that do not slow each other, one line"
    )

    service_s: float
    servers: int

    def __post_init__(self) -> None:
        super(MMc, self).__post_init__()
        positive_finite(service_s=self.service_s)
        whole_number("servers", self.servers, MAX_SERVERS)

    @property
    def utilisation(self) -> float:
        return self.arrivals_per_s * self.service_s / self.servers

    @property
    def waiting_share(self) -> float:
        """The chance that a request has to wait."""
        return erlang_c(offered_load=self.arrivals_per_s * self.service_s, servers=self.servers)

    @property
    def _spare_per_s(self) -> float:
        """Completions per second of all servers, less arrivals: the rate at which a line clears."""
        return self.servers / self.service_s - self.arrivals_per_s

    @property
    def mean_wait_s(self) -> float:
        return inf if self.saturated else self.waiting_share / self._spare_per_s

    @property
    def mean_time_s(self) -> float:
        return self.mean_wait_s + self.service_s

    def _wait_tail(self, t_s: float) -> float:
        return self.waiting_share * exp(-self._spare_per_s * t_s)

    def _time_tail(self, t_s: float) -> float:
        return still_there(
            t_s, rate=1.0 / self.service_s, waiting_share=self.waiting_share, spare=self._spare_per_s
        )


def still_there(t: float, *, rate: float, waiting_share: float, spare: float) -> float:
    """P(time > t) of M/M/c: served from the start, or waited for a line that clears at `spare` first."""
    return exp(-rate * t) + waiting_share * rate * _both(rate, spare, t)


def _both(rate: float, spare: float, t: float) -> float:
    """The integral of e^(-spare·u)·e^(-rate·(t - u)) from 0 to t: waiting first, then service; t·e^(-rate·t) where equal."""
    slower, apart = min(rate, spare), abs(rate - spare)
    return exp(-slower * t) * (t if apart * t < 1e-12 else -expm1(-apart * t) / apart)


@dataclass(frozen=True, slots=True, kw_only=True)
class MM1K(OneServer):
    """M/M/1 with room for `capacity` requests; those that find it full are refused.

    Times are those of accepted requests, finite at every load: what overload costs shows in `refused_share`, and the
    state is still "saturated" from utilisation 1 on, above which the excess is refused.

    Source: Kleinrock 1975, Queueing Systems I, section 3.6. Ignores: refused requests that come back.
    """

    name: ClassVar[str] = "M/M/1/K"
    holds: ClassVar[str] = "Poisson arrivals, exponential service, one at a time, a bounded line that refuses"

    capacity: int

    def __post_init__(self) -> None:
        super(MM1K, self).__post_init__()
        whole_number("capacity", self.capacity, MAX_CAPACITY)

    def numbers(self) -> Any:
        """The chance of n requests in the system, n = 0 ... capacity."""
        if self.utilisation == 0.0:
            return np.eye(1, self.capacity + 1)[0]
        exponents = np.arange(self.capacity + 1) * np.log(self.utilisation)
        weights = np.exp(exponents - exponents.max())
        return weights / weights.sum()

    @property
    def refused_share(self) -> float:
        return float(self.numbers()[-1])

    @property
    def accepted_per_s(self) -> float:
        return self.arrivals_per_s * (1.0 - self.refused_share)

    @property
    def mean_in_system(self) -> float:
        return float(self.numbers() @ np.arange(self.capacity + 1))

    @property
    def mean_waiting(self) -> float:
        return self.accepted_per_s * self.mean_wait_s

    @property
    def mean_wait_s(self) -> float:
        return self.mean_time_s - self.service_s

    @property
    def mean_time_s(self) -> float:
        return float(self._found() @ np.arange(1, self.capacity + 1)) * self.service_s

    def wait_tail(self, t_s: float) -> float:
        """The chance that an accepted request waits more than `t_s`: a mix of Erlang tails."""
        return 1.0 if t_s < 0 else float(self._found()[1:] @ self._erlang_tails(t_s)[:-1])

    def time_tail(self, t_s: float) -> float:
        """The chance that an accepted request stays more than `t_s`."""
        return 1.0 if t_s < 0 else float(self._found() @ self._erlang_tails(t_s))

    def _wait_tail(self, t_s: float) -> float:
        return self.wait_tail(t_s)

    def _time_tail(self, t_s: float) -> float:
        return self.time_tail(t_s)

    def _quantile(self, tail: Callable[[float], float], percentile: float) -> float:
        return quantile(tail, check_percentile(percentile), scale=self.mean_time_s)

    def _found(self) -> Any:
        """The chance that an accepted request finds n others, n = 0 ... capacity - 1."""
        accepted = self.numbers()[:-1]
        return accepted / accepted.sum()

    def _erlang_tails(self, t_s: float) -> Any:
        """P(n services take more than t), n = 1 ... capacity."""
        mean = t_s / self.service_s
        if mean == 0.0:
            return np.ones(self.capacity)
        n = np.arange(self.capacity)
        log_terms = (
            n * np.log(mean) - mean - np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, self.capacity)))))
        )
        return np.minimum(1.0, np.cumsum(np.exp(log_terms)))


def whole_number(name: str, value: int, most: int) -> int:
    """`value` if it is a whole number from 1 to `most`; refuses it by name otherwise."""
    if not isinstance(value, int) or not 1 <= value <= most:
        raise InputError(name, value, f"it must be a whole number from 1 to {most:,}")
    return value
