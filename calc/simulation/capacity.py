"""How much holds the targets: the rate that one deployment bears, and the replicas that a rate needs.

The same requests, with the same lengths and the same random numbers, are tried at every rate (only time is
stretched) and on every number of replicas; so that two trials differ by the load and not by luck. A trial ends as
soon as so many requests have missed that the targets are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil, inf

import numpy as np

from calc.errors import InputError
from calc.simulation.cluster import Cluster
from calc.simulation.requests import MAX_TIME_S, RequestTable
from calc.simulation.results import SimulationResult
from calc.simulation.rules import EngineRules
from calc.simulation.run import DEFAULT_SLICE, Simulation
from calc.simulation.state import LoadState
from calc.simulation.step_table import StepTable
from calc.slo import Slo

MOST_REPLICAS = 4096
DOUBLINGS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One load that was tried; `result` is None if it was lost before its end."""

    rate_per_s: float
    replicas: int
    holds: bool
    result: SimulationResult | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The best load that held, or None if even the least one did not; and everything that was tried."""

    best: Trial | None
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What is searched over: requests, engine, step time and targets.

    An SLO without a percentile is of means; with one, that share of the requests must meet each target.
    """

    requests: RequestTable
    rules: EngineRules
    step: StepTable
    slo: Slo
    cluster: Cluster = field(default_factory=Cluster)

    def __post_init__(self) -> None:
        if self.slo.ttft_s is None and self.slo.tpot_s is None and self.slo.e2e_s is None:
            raise InputError("targets", "none", "give at least one of ttft_s, tpot_s, e2e_s")
        if self.requests.predecessor is not None and (self.requests.predecessor >= 0).all():
            raise InputError(
                "requests", "a closed loop", "its rate follows from its users; search over users instead"
            )


def try_load(searched: Searched, *, rate_per_s: float, replicas: int) -> Trial:
    """One trial; it stops when more requests have missed a target than the percentile allows."""
    slo = searched.slo
    requests = searched.requests.at_rate(rate_per_s)
    cluster = replace(searched.cluster, replicas=replicas)
    run = Simulation(requests, searched.rules, searched.step, cluster=cluster)
    allowed = inf if slo.percentile is None else ceil(len(requests) * (1 - slo.percentile / 100))
    limits = tuple(inf if limit is None else limit for limit in (slo.ttft_s, slo.tpot_s, slo.e2e_s))
    while not run.advance(DEFAULT_SLICE):
        # requests that miss one target each may exceed it while each target holds; hence the number of targets
        if run.violators(*limits) > allowed * sum(limit < inf for limit in limits):
            return Trial(rate_per_s=rate_per_s, replicas=replicas, holds=False, result=None)
    result = run.result()
    holds = result.holds(slo) and result.state is not LoadState.SATURATED
    return Trial(rate_per_s=rate_per_s, replicas=replicas, holds=holds, result=result)


def largest_rate(
    searched: Searched,
    *,
    replicas: int = 1,
    precision: float = 0.01,
    told: Callable[[Trial], None] | None = None,
) -> Capacity:
    """The largest rate that holds the targets, to a relative `precision`, by doubling and bisection on the logarithm."""
    if not 1e-4 <= precision < 1:
        raise InputError("precision", precision, "it must be from 0.0001 to below 1")
    trials: list[Trial] = []

    def attempt(rate_per_s: float) -> bool:
        trials.append(try_load(searched, rate_per_s=rate_per_s, replicas=replicas))
        if told is not None:
            told(trials[-1])
        return trials[-1].holds

    good = bad = searched.requests.rate_per_s
    slowest = good * float(np.nanmax(searched.requests.arrival_s)) / MAX_TIME_S  # the clock ends there
    if attempt(good):
        for _ in range(DOUBLINGS):
            bad = good * 2
            if not attempt(bad):
                break
            good = bad
    else:
        for _ in range(DOUBLINGS):
            good = bad / 2
            if good < slowest or attempt(good):
                break
            bad = good
    while bad / good > 1 + precision and any(trial.holds for trial in trials):
        middle = (good * bad) ** 0.5
        good, bad = (middle, bad) if attempt(middle) else (good, middle)
    held = [trial for trial in trials if trial.holds]
    best = max(held, key=lambda trial: trial.rate_per_s) if held else None
    return Capacity(best=best, trials=tuple(trials))


def fewest_replicas(
    searched: Searched, *, most: int = MOST_REPLICAS, told: Callable[[Trial], None] | None = None
) -> Capacity:
    """The fewest replicas that hold the targets at the requests' own rate, by doubling and bisection."""
    trials: dict[int, Trial] = {}

    def attempt(replicas: int) -> bool:
        trials[replicas] = try_load(searched, rate_per_s=searched.requests.rate_per_s, replicas=replicas)
        if told is not None:
            told(trials[replicas])
        return trials[replicas].holds

    bad, good = 0, 1
    while not attempt(good):
        if good >= most:
            return Capacity(best=None, trials=tuple(trials.values()))
        bad, good = good, min(2 * good, most)
    while good - bad > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if attempt(middle) else (good, middle)
    return Capacity(best=trials[good], trials=tuple(trials.values()))
