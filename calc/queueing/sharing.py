"""Processor sharing: requests that are served together and slow each other down, as in continuous batching.

Each of n running sequences gets one token a step of T(n) seconds, so requests leave at μ(n) = n / (tokens · T(n)) per
second together. That is a queue whose rate depends on its load, shared evenly; past `slots` sequences the rest wait in
line. The number in the system is a birth-death chain; the time of one request is followed through the same chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log
from typing import Any, ClassVar

import numpy as np

from calc.arrays import positive_finite
from calc.errors import InputError
from calc.queueing.base import Queue, check_percentile, quantile
from calc.queueing.service import Service

FORGOTTEN = 1e-12  # chance of larger numbers in the system that the chain leaves out
MAX_STATES = 60_000
MAX_JUMPS = 400_000
REMAINING = 1e-5  # of the smallest tail asked for: chance of still being here at which the walk stops


def decode_completions_per_s(*, step_s: Any, output_tokens: float) -> Any:
    """Requests that finish per second with n = 1, 2, ... sequences running: n / (tokens · T(n)).

    `step_s[n-1]` is the time of a step with n sequences.

    Source: each sequence gets one token a step. Ignores: prefills between the steps, unless T(n) holds their share.
    """
    positive_finite(step_s=step_s, output_tokens=output_tokens)
    steps = np.atleast_1d(np.asarray(step_s, dtype=float))
    return np.arange(1, steps.size + 1) / (output_tokens * steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadDependentSharing(Queue):
    """Poisson arrivals, a rate that depends on how many run, shared evenly; at most `slots` run, the rest wait in order.

    `completions_per_s[n-1]` is the total rate with n running; past its end the last rate stays. `slots` None: all run.
    Means are exact for exponential sizes, and for any sizes when nobody has to wait (symmetric queues are insensitive);
    quantiles are exact for exponential sizes and near for others.

    Source: Cohen 1979 (Acta Informatica 12) for generalised processor sharing; Zhang and Zwart 2008 (Queueing Systems
    60) for limited sharing; Grassmann 1977 (Computers and Operations Research 4) for uniformisation. Ignores: bursts,
    and that prompts stall the running sequences unless the rates hold their share.
    """

    name: ClassVar[str] = "M/M/1 with load-dependent sharing"
    holds: ClassVar[str] = "Poisson arrivals, sizes near exponential, all running requests advance together"

    completions_per_s: tuple[float, ...]
    slots: int | None = None

    def __post_init__(self) -> None:
        super(LoadDependentSharing, self).__post_init__()
        positive_finite(arrivals_per_s=self.arrivals_per_s)
        if not self.completions_per_s:
            raise InputError(
                "completions_per_s", self.completions_per_s, "give the rate of at least one running request"
            )
        positive_finite(completions_per_s=self.completions_per_s)
        if self.slots is not None and self.slots < 1:
            raise InputError("slots", self.slots, "at least one request must be able to run")

    def running(self, number: Any) -> Any:
        """How many of `number` requests run."""
        return number if self.slots is None else np.minimum(number, self.slots)

    def rate(self, number: Any) -> Any:
        """Completions per second with `number` requests in the system; 0 with none."""
        rates = np.concatenate(([0.0], self.completions_per_s))
        return rates[np.minimum(self.running(np.asarray(number)), rates.size - 1)]

    @property
    def full_rate_per_s(self) -> float:
        """Completions per second when the line never empties."""
        most = (
            len(self.completions_per_s)
            if self.slots is None
            else min(self.slots, len(self.completions_per_s))
        )
        return self.completions_per_s[most - 1]

    @property
    def utilisation(self) -> float:
        return self.arrivals_per_s / self.full_rate_per_s

    @property
    def _head(self) -> int:
        """From this number on the rate stays the same."""
        return min(len(self.completions_per_s), self.slots or len(self.completions_per_s))

    def _weights(self, states: int) -> Any:
        """Unnormalised chances of n = 0 ... states, the largest of them 1."""
        ratios = self.arrivals_per_s / self.rate(np.arange(1, states + 1))
        logs = np.concatenate(([0.0], np.cumsum(np.log(ratios))))
        return np.exp(logs - logs.max())

    def numbers(self) -> Any:
        """The chance of n requests in the system, n = 0, 1, ...; the chain is cut where 1e-12 is left."""
        if self.saturated:
            raise InputError(
                "arrivals_per_s", self.arrivals_per_s, f"it must stay below {self.full_rate_per_s:.6g}"
            )
        states = self._head + int(log(FORGOTTEN) / log(self.utilisation)) + 2
        if states > MAX_STATES:
            raise InputError(
                "utilisation", self.utilisation, f"it is too near to 1 for {MAX_STATES:,} states"
            )
        weights = self._weights(states)
        return weights / weights.sum()

    @property
    def mean_in_system(self) -> float:
        return self._means()[0]

    @property
    def mean_running(self) -> float:
        """The mean batch; all slots when saturated."""
        return self._means()[1]

    def _means(self) -> tuple[float, float]:
        """(mean number in the system, mean number that run): past the head the chances are geometric, summed exactly."""
        if self.saturated:
            return inf, float(self.slots or inf)
        head, rho = self._head, self.utilisation
        weights = self._weights(head)
        n = np.arange(head + 1)
        more = weights[-1] * rho / (1.0 - rho)  # all weights past the head
        beyond = 1.0 / (1.0 - rho)  # mean number past the head, given past it
        total = weights.sum() + more
        in_system = weights @ n + more * (head + beyond)
        run = weights @ n + more * self._mean_running_past(head)
        return float(in_system / total), float(run / total)

    def _mean_running_past(self, head: int) -> float:
        """Mean of min(n, slots) when n - head is geometric from 1 with ratio rho."""
        rho = self.utilisation
        if self.slots is None:
            return head + 1.0 / (1.0 - rho)
        return head + (1.0 - rho ** (self.slots - head)) / (1.0 - rho)

    @property
    def mean_time_s(self) -> float:
        return self.mean_in_system / self.arrivals_per_s

    @property
    def mean_wait_s(self) -> float:
        return (
            inf if self.saturated else max(0.0, self.mean_in_system - self.mean_running) / self.arrivals_per_s
        )

    def time_quantile_s(self, percentile: float, *, sizes: Service | None = None) -> float:
        """The time that `percentile` per cent of requests do not exceed; infinite when saturated."""
        return self.time_quantiles_s((percentile,), sizes=sizes)[0]

    def time_quantiles_s(
        self, percentiles: tuple[float, ...], *, sizes: Service | None = None
    ) -> tuple[float, ...]:
        """Several percentiles of the time in the system.

        `sizes` None: exponential, exact. Otherwise sizes vary as this distribution does (only its shape counts), and
        the load that a request finds is taken to last for its stay, and a wait in line to scale by (1 + c²)/2 as
        Pollaczek and Khinchine have it. Near where the batch is large and changes little meanwhile, as in decoding: within
        6% of simulation in the tests, p99 included.
        """
        shares = [check_percentile(p) for p in percentiles]
        if self.saturated:
            return tuple(inf for _ in shares)
        tail = (
            _FollowedRequest(self, remaining=REMAINING * (1.0 - max(shares))).time_tail
            if sizes is None
            else self._tail_at_found_load(sizes)
        )
        return tuple(quantile(tail, each, scale=self.mean_time_s, precision=1e-9) for each in shares)

    def _tail_at_found_load(self, sizes: Service) -> Callable[[float], float]:
        """P(time > t) when the load found on arrival lasts: a wait for the line, then the size at that load's pace."""
        chances = self.numbers()
        found = np.arange(chances.size)
        unevenness = (1.0 + sizes.scv) / 2.0
        wait_s = unevenness * (found + 1 - self.running(found + 1)) / self.full_rate_per_s
        pace_s = self.running(found + 1) / self.rate(found + 1)  # of a request of mean size

        def tail(t_s: float) -> float:
            relative = np.maximum(t_s - wait_s, 0.0) / pace_s
            return float(chances @ np.where(t_s > wait_s, sizes.tail(relative * sizes.mean_s), 1.0))

        return tail


class _FollowedRequest:
    """One request through the chain: first the line (if any), then its share of service, until it leaves.

    In the line, the number before it is geometric whatever happens, so each departure lets it in with the same chance,
    and only the number behind it must be kept. In service, n others run or wait. Time is uniformised: jumps come at
    `pace` per second, and `survival[j]` is the chance to be still here after j of them.
    """

    def __init__(self, queue: LoadDependentSharing, *, remaining: float) -> None:
        chances = queue.numbers()
        others = chances.size
        n = np.arange(others)
        total = queue.rate(n + 1)
        leave = total / queue.running(n + 1)  # the followed request is one of those that run
        arrivals = np.full(others, queue.arrivals_per_s)
        arrivals[-1] = 0.0  # the chain ends where 1e-12 is left
        self.pace = float((total + arrivals).max())
        in_line = np.zeros(others)  # by the number behind it
        self.entry = others if queue.slots is None else min(queue.slots, others)
        if self.entry < others:
            in_line[0] = float(chances[self.entry :].sum())
            chances = np.where(n < self.entry, chances, 0.0)
        admitted = queue.full_rate_per_s * (1.0 - queue.utilisation)
        # One vector for both: where it may be in service, then where it may be in the line.
        self.start = np.concatenate((chances, in_line))
        self.up = np.concatenate((arrivals, arrivals)) / self.pace
        self.down = np.concatenate((total - leave, np.zeros(others))) / self.pace
        gone = np.concatenate((leave, np.full(others, admitted))) / self.pace
        self.stay = 1.0 - self.up - self.down - gone
        self.admitted = admitted / self.pace
        self.survival = self._walk(remaining)
        self.log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, self.survival.size)))))

    def _walk(self, remaining: float) -> Any:
        """survival[j] until it is no more than `remaining`."""
        where, others = self.start, self.start.size // 2
        room = (
            others - self.entry + 1
        )  # with b behind it, b + slots - 1 others are in the system when it enters
        waits = bool(where[others] > 0)
        survival = [1.0]
        while survival[-1] > remaining and len(survival) < MAX_JUMPS:
            moved = where * self.stay
            moved[1:] += (where * self.up)[:-1]
            moved[:-1] += (where * self.down)[1:]
            if waits:
                moved[self.entry - 1 : others] += self.admitted * where[others : others + room]
            where = moved
            survival.append(float(where.sum()))
        return np.asarray(survival)

    def time_tail(self, t_s: float) -> float:
        """P(time > t): survival after a Poisson number of jumps."""
        if t_s <= 0:
            return 1.0
        mean = self.pace * t_s
        jumps = np.arange(self.survival.size)
        chances = np.exp(jumps * log(mean) - mean - self.log_factorial)
        return float(chances @ self.survival)
