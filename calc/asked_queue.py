"""One queue as a person asks about it: its kind, its traffic and its servers, and every number that follows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.arrays import positive_finite
from calc.queue_curves import QueueKind, TimedQueue, quantiles_s, queue_of, replicas_for
from calc.queueing import closed_forms

PERCENTILE = 95.0
"""The percentile that the limit is for."""


def arrivals_at(*, load: float, service_s: float, servers: int) -> float:
    """Requests per second that keep `servers` busy for a share `load` of their time.

    Source: utilisation law, solved for the rate. Ignores: nothing.
    """
    positive_finite(service_s=service_s)
    return load * servers / service_s


def mean_in_services(kind: QueueKind, *, load: float, servers: int) -> float:
    """Mean time in the system in service times, which is the same for every service time."""
    return queue_of(kind, load=load, service_s=1.0, servers=servers).mean_time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQueue:
    """A queue of `replicas` servers; `limit_s`: the time that 95% of requests are to keep."""

    kind: QueueKind
    arrivals_per_s: float
    service_s: float
    replicas: int
    limit_s: float

    @property
    def load(self) -> float:
        return float(
            closed_forms.utilisation(
                arrivals_per_s=self.arrivals_per_s, service_s=self.service_s, servers=self.replicas
            )
        )

    @property
    def queue(self) -> TimedQueue:
        """The queue that a request sees: of all servers where they share a line, else of one."""
        return queue_of(self.kind, load=self.load, service_s=self.service_s, servers=self.replicas)

    @property
    def mean_in_system(self) -> float:
        """Requests in the system in the mean, of all replicas together."""
        lines = 1 if self.kind is QueueKind.MMC else self.replicas
        return lines * self.queue.mean_in_system

    @property
    def p95_s(self) -> float:
        return quantiles_s(self.queue)[0]

    @property
    def replicas_needed(self) -> float:
        """The fewest replicas whose 95th percentile keeps the limit; infinite where none do."""
        return replicas_for(
            self.kind, arrivals_per_s=self.arrivals_per_s, service_s=self.service_s, limit_s=self.limit_s
        )

    @property
    def served_twice_as_fast(self) -> AskedQueue:
        """The same traffic, each request half the work."""
        return replace(self, service_s=self.service_s / 2)

    @property
    def gain_of_twice_as_fast(self) -> float:
        """How many times shorter the mean time in the system then is."""
        return self.queue.mean_time_s / self.served_twice_as_fast.queue.mean_time_s
