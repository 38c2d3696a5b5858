"""Static batching as a queue with bulk service: the server takes up to b requests at once and keeps them to the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import erf, exp, inf, log, sqrt
from typing import Any, ClassVar

import numpy as np

from calc.arrays import not_negative, positive_finite
from calc.errors import InputError
from calc.queueing.base import Queue
from calc.queueing.many_servers import whole_number

MAX_BATCH = 1024
MAX_STATES = 4096
FORGOTTEN = 1e-10  # chance of longer lines that the chain leaves out


class ServiceSpread(StrEnum):
    """How the service time of a batch varies around its mean."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkService(Queue):
    """M/G[a,b]/1: the server starts when `start_at` wait, takes up to `len(service_s)` of them, and serves them together.

    `service_s[k-1]` is the mean time of a batch of k: prefill of k prompts and as many steps as the longest output. The
    line is looked at when services end (an embedded Markov chain); means over time follow by renewal reward.

    Source: Bailey 1954 (J. Roy. Stat. Soc. B 16); Neuts 1967 (Ann. Math. Stat. 38) for the (a, b) rule. Ignores: bursts,
    and time-outs that start a batch before `start_at` wait.
    """

    name: ClassVar[str] = "M/G[a,b]/1"
    holds: ClassVar[str] = "Poisson arrivals, static batches that start and end together"

    service_s: tuple[float, ...]
    start_at: int = 1
    spread: ServiceSpread = ServiceSpread.FIXED

    def __post_init__(self) -> None:
        super(BulkService, self).__post_init__()
        positive_finite(arrivals_per_s=self.arrivals_per_s)
        whole_number("largest batch", len(self.service_s), MAX_BATCH)
        positive_finite(service_s=self.service_s)
        if not 1 <= self.start_at <= self.largest_batch:
            raise InputError(
                "start_at", self.start_at, f"it must be from 1 to the batch ({self.largest_batch})"
            )

    @property
    def largest_batch(self) -> int:
        return len(self.service_s)

    @property
    def utilisation(self) -> float:
        """Requests that arrive in a full batch's service, over the batch."""
        return self.arrivals_per_s * self.service_s[-1] / self.largest_batch

    @property
    def mean_wait_s(self) -> float:
        """Mean wait until the own batch starts."""
        return inf if self.saturated else _cycle(self).mean_wait_s

    @property
    def mean_service_s(self) -> float:
        """Mean service over requests (large batches count by their members)."""
        return self.service_s[-1] if self.saturated else _cycle(self).mean_service_s

    @property
    def mean_time_s(self) -> float:
        return inf if self.saturated else self.mean_wait_s + self.mean_service_s

    @property
    def mean_batch(self) -> float:
        """Mean requests in a batch."""
        return float(self.largest_batch) if self.saturated else _cycle(self).mean_batch

    @property
    def busy_share(self) -> float:
        """Share of time in which the server serves; small batches keep it busy below saturation as well."""
        return 1.0 if self.saturated else _cycle(self).busy_share


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cycle:
    """Means over one cycle, from the end of a service to the end of the next."""

    mean_wait_s: float
    mean_service_s: float
    mean_batch: float
    busy_share: float


@lru_cache(maxsize=128)
def _cycle(queue: BulkService) -> _Cycle:
    rate, b, a = queue.arrivals_per_s, queue.largest_batch, queue.start_at
    left, chances = _line_at_ends(queue)
    batch = np.clip(left, a, b)
    mean = np.asarray(queue.service_s)[batch - 1]
    second = mean**2 * (1.0 if queue.spread is ServiceSpread.FIXED else 2.0)
    idle = np.maximum(a - left, 0) / rate
    # While the server idles the line grows from n to a, one request each 1/rate on average.
    grown = np.maximum(a - left, 0) * (np.minimum(left, a) + a - 1) / 2.0
    line_time = grown / rate + np.maximum(left - b, 0) * mean + rate * second / 2.0
    cycle = float(chances @ (idle + mean))
    served = float(chances @ batch)
    return _Cycle(
        mean_wait_s=float(chances @ line_time) / cycle / rate,
        mean_service_s=float(chances @ (batch * mean)) / served,
        mean_batch=served,
        busy_share=float(chances @ mean) / cycle,
    )


def _line_at_ends(queue: BulkService) -> tuple[Any, Any]:
    """(numbers that wait when a service ends, their chances); more states are taken until the last is negligible."""
    states = max(64, 4 * queue.largest_batch)
    while True:
        left = np.arange(states)
        moves = _moves(queue, left)
        balance = moves.T - np.eye(states)
        balance[-1] = 1.0
        chances = np.linalg.solve(balance, np.eye(1, states, states - 1)[0])
        if chances[-1] < FORGOTTEN:
            return left, np.maximum(chances, 0.0) / np.maximum(chances, 0.0).sum()
        if states >= MAX_STATES:
            raise InputError(
                "utilisation", queue.utilisation, f"it is too near to 1 for a line of {MAX_STATES:,} requests"
            )
        states = min(2 * states, MAX_STATES)


def _moves(queue: BulkService, left: Any) -> Any:
    """Chance to go from n waiting at one end to m at the next: those not taken, and the arrivals of one service."""
    batch = np.clip(left, queue.start_at, queue.largest_batch)
    by_batch = {int(k): _arrivals(queue, int(k), left.size) for k in np.unique(batch)}
    moves = np.zeros((left.size, left.size))
    for n in left:
        stay = max(0, int(n) - queue.largest_batch)
        moves[n, stay:] = by_batch[int(batch[n])][: left.size - stay]
    moves[:, -1] += 1.0 - moves.sum(axis=1)
    return moves


def _arrivals(queue: BulkService, batch: int, size: int) -> Any:
    """Chances of 0 ... size - 1 arrivals during the service of a batch."""
    mean = queue.arrivals_per_s * queue.service_s[batch - 1]
    k = np.arange(size)
    if queue.spread is ServiceSpread.EXPONENTIAL:
        return (mean / (1.0 + mean)) ** k / (1.0 + mean)
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, size)))))
    return np.exp(k * log(mean) - mean - log_factorial)


def expected_longest(*, mean_tokens: float, cv: float, batch: int) -> float:
    """Mean of the longest of `batch` lognormal lengths: the decode steps of a static batch. `cv` 0: all equal.

    Source: E[max] as the integral of 1 - F^batch, F lognormal. Ignores: limits on the length.
    """
    positive_finite(mean_tokens=mean_tokens, batch=batch)
    not_negative(cv=cv)
    if cv == 0.0 or batch == 1:
        return mean_tokens
    spread = sqrt(log(1.0 + cv**2))
    z = np.linspace(-8.0, 8.0 + spread * 4.0, 4001)
    below = 0.5 * (1.0 + np.vectorize(erf)(z / sqrt(2.0)))
    lengths = mean_tokens * exp(-0.5 * spread**2) * np.exp(spread * z)
    exceeded = 1.0 - below**batch
    return float(lengths[0] + np.sum(0.5 * (exceeded[1:] + exceeded[:-1]) * np.diff(lengths)))


def static_batch_service_s(
    *, prefill_s: float, step_s: Any, output_tokens: float, output_cv: float = 0.0
) -> tuple[float, ...]:
    """Mean service of static batches of 1, 2, ... requests: k prefills, then a step for each token of the longest output.

    `step_s[k-1]` is the time of a step with k sequences; the first token comes with the prefill. For `BulkService`.

    Source: Yu et al. 2022 (Orca, OSDI'22), section 2. Ignores: padding of prompts, and steps that get cheaper as
    sequences end.
    """
    not_negative(prefill_s=prefill_s)
    steps = np.atleast_1d(np.asarray(step_s, dtype=float))
    positive_finite(step_s=steps)
    longest = [
        expected_longest(mean_tokens=output_tokens, cv=output_cv, batch=k) for k in range(1, steps.size + 1)
    ]
    return tuple(
        k * prefill_s + max(0.0, n - 1.0) * float(step)
        for k, (n, step) in enumerate(zip(longest, steps, strict=True), start=1)
    )
