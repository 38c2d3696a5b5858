"""What every queue here can say: `Queue`, and the search that turns a distribution's tail into a quantile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import ClassVar

from calc.arrays import not_negative, positive_finite
from calc.errors import InputError
from calc.saturation import State, state_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(ABC):
    """A queue at `arrivals_per_s`: its means and its state; most also know their quantiles (`TailQueue`).

    `name` in Kendall's notation, `holds` says when the formulas are right. Every time is infinite when the queue is
    saturated: no finite latency belongs to it. "Wait" ends when service begins, "time" when it ends.
    """

    name: ClassVar[str]
    holds: ClassVar[str]

    arrivals_per_s: float

    def __post_init__(self) -> None:
        not_negative(arrivals_per_s=self.arrivals_per_s)

    @property
    @abstractmethod
    def utilisation(self) -> float:
        """Work that arrives over work that can be done; 1 and more: saturated."""

    @property
    @abstractmethod
    def mean_wait_s(self) -> float:
        """Mean seconds before service begins."""

    @property
    @abstractmethod
    def mean_time_s(self) -> float:
        """Mean seconds from arrival to the end of service."""

    @property
    def state(self) -> State:
        return state_of(self.utilisation)

    @property
    def saturated(self) -> bool:
        return self.state is State.SATURATED

    @property
    def mean_waiting(self) -> float:
        """Mean number that wait (Little)."""
        return self.arrivals_per_s * self.mean_wait_s if self.arrivals_per_s else 0.0

    @property
    def mean_in_system(self) -> float:
        """Mean number that wait or are served (Little)."""
        return self.arrivals_per_s * self.mean_time_s if self.arrivals_per_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TailQueue(Queue):
    """A queue that knows the distribution of wait and time: `..._tail(t)` is the chance of more than t seconds."""

    @abstractmethod
    def _wait_tail(self, t_s: float) -> float:
        """P(wait > t) for t >= 0, not saturated."""

    @abstractmethod
    def _time_tail(self, t_s: float) -> float:
        """P(time > t) for t >= 0, not saturated."""

    def wait_tail(self, t_s: float) -> float:
        """The chance to wait more than `t_s` seconds; 1 when saturated."""
        return 1.0 if self.saturated or t_s < 0 else min(1.0, max(0.0, self._wait_tail(t_s)))

    def time_tail(self, t_s: float) -> float:
        """The chance to stay more than `t_s` seconds; 1 when saturated."""
        return 1.0 if self.saturated or t_s < 0 else min(1.0, max(0.0, self._time_tail(t_s)))

    def wait_quantile_s(self, percentile: float) -> float:
        """The wait that `percentile` per cent of requests do not exceed; infinite when saturated."""
        return self._quantile(self.wait_tail, percentile)

    def time_quantile_s(self, percentile: float) -> float:
        """The time that `percentile` per cent of requests do not exceed; infinite when saturated."""
        return self._quantile(self.time_tail, percentile)

    def _quantile(self, tail: Callable[[float], float], percentile: float) -> float:
        share = check_percentile(percentile)
        return inf if self.saturated else quantile(tail, share, scale=self.mean_time_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneServer(TailQueue):
    """A line before one server, whose service takes `service_s` in the mean."""

    service_s: float

    def __post_init__(self) -> None:
        super(OneServer, self).__post_init__()
        positive_finite(service_s=self.service_s)

    @property
    def utilisation(self) -> float:
        return self.arrivals_per_s * self.service_s


def check_percentile(percentile: float) -> float:
    """`percentile` (0 to below 100) as a share; refuses anything else."""
    if not 0 <= percentile < 100:
        raise InputError("percentile", percentile, "it must be from 0 to below 100")
    return percentile / 100.0


def quantile(
    tail: Callable[[float], float], share: float, scale: float, *, precision: float = 1e-10
) -> float:
    """The smallest t >= 0 with tail(t) <= 1 - share, for a tail P(T > t) that falls; `scale` is a first guess of t.

    Brackets by doubling, then bisects until t is known to a relative `precision`.
    """
    target = 1.0 - share
    if tail(0.0) <= target:
        return 0.0
    low, high = 0.0, scale
    while tail(high) > target:
        low, high = high, 2.0 * high
        if not isfinite(high):
            return inf
    while high - low > precision * high:
        middle = 0.5 * (low + high)
        if middle in {low, high}:
            break
        if tail(middle) > target:
            low = middle
        else:
            high = middle
    return high
