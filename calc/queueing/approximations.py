"""Any arrivals, any service, one or many servers: the mean wait, nearly. Kingman, Allen-Cunneen, Sakasegawa.

They take bursts into account through `arrival_scv`, the squared coefficient of variation of the gaps (1: Poisson). Right
in heavy traffic; the error grows where queues are short. A saturated queue gives infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import ClassVar

from calc.arrays import not_negative, positive_finite
from calc.queueing.base import TailQueue
from calc.queueing.closed_forms import allen_cunneen_mean_wait_s, kingman_mean_wait_s, sakasegawa_mean_wait_s
from calc.queueing.many_servers import MAX_SERVERS, MMc, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class _General(TailQueue):
    """What the three have in common: a mean wait, and an exponential wait of those who wait at all."""

    service_s: float
    arrival_scv: float = 1.0
    service_scv: float = 1.0
    servers: int = 1

    def __post_init__(self) -> None:
        super(_General, self).__post_init__()
        positive_finite(service_s=self.service_s)
        not_negative(arrival_scv=self.arrival_scv, service_scv=self.service_scv)
        whole_number("servers", self.servers, MAX_SERVERS)

    @property
    def utilisation(self) -> float:
        return self.arrivals_per_s * self.service_s / self.servers

    @property
    def mean_time_s(self) -> float:
        return self.mean_wait_s + self.service_s

    @property
    def waiting_share(self) -> float:
        """The chance to wait, taken from M/M/c."""
        line = MMc(arrivals_per_s=self.arrivals_per_s, service_s=self.service_s, servers=self.servers)
        return line.waiting_share

    def _wait_tail(self, t_s: float) -> float:
        """Those who wait do so exponentially: right in heavy traffic (Kingman 1961), else a rough guide."""
        mean = self.mean_wait_s
        return self.waiting_share * exp(-self.waiting_share * t_s / mean) if mean > 0 else 0.0

    def _time_tail(self, t_s: float) -> float:
        """The wait's tail moved by one mean service: service is taken as even."""
        return self.wait_tail(t_s - self.service_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kingman(_General):
    """G/G/1: ρ/(1 - ρ) · S · (c_a² + c_s²)/2.

    Source: Kingman 1961 (Proc. Camb. Phil. Soc. 57), in the form of the heavy-traffic approximation. Ignores: light
    traffic, correlation between gaps.
    """

    name: ClassVar[str] = "G/G/1 (Kingman)"
    holds: ClassVar[str] = "one server, independent gaps and services of any kind, high load; approximate"

    def __post_init__(self) -> None:
        super(Kingman, self).__post_init__()
        whole_number("servers", self.servers, 1)

    @property
    def mean_wait_s(self) -> float:
        return float(
            kingman_mean_wait_s(
                utilisation=self.utilisation,
                service_s=self.service_s,
                arrival_scv=self.arrival_scv,
                service_scv=self.service_scv,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllenCunneen(_General):
    """G/G/c: the wait of M/M/c times (c_a² + c_s²)/2.

    Source: Allen 1990, Probability, Statistics and Queueing Theory, section 5.3. Ignores: correlation between gaps.
    """

    name: ClassVar[str] = "G/G/c (Allen-Cunneen)"
    holds: ClassVar[str] = "servers with one line, independent gaps and services of any kind; approximate"

    @property
    def mean_wait_s(self) -> float:
        return float(
            allen_cunneen_mean_wait_s(
                waiting_share=self.waiting_share,
                utilisation=self.utilisation,
                service_s=self.service_s,
                servers=self.servers,
                arrival_scv=self.arrival_scv,
                service_scv=self.service_scv,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sakasegawa(_General):
    """G/G/c without Erlang's formula: ρ^(√(2(c+1)) - 1) / (c·(1 - ρ)) · S · (c_a² + c_s²)/2.

    Source: Sakasegawa 1977 (Ann. Inst. Statist. Math. 29). Ignores: correlation between gaps.
    """

    name: ClassVar[str] = "G/G/c (Sakasegawa)"
    holds: ClassVar[str] = "servers with one line, independent gaps and services of any kind; approximate"

    @property
    def mean_wait_s(self) -> float:
        return float(
            sakasegawa_mean_wait_s(
                utilisation=self.utilisation,
                service_s=self.service_s,
                servers=self.servers,
                arrival_scv=self.arrival_scv,
                service_scv=self.service_scv,
            )
        )
