"""Traffic through the simulator for people to look at: where requests come from, one run, and what its charts need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from calc.errors import InputError
from calc.proof import clock_of, rules_of
from calc.result import Answer
from calc.simulation import workload as arrivals
from calc.simulation.cluster import Cluster, Router
from calc.simulation.requests import RequestTable
from calc.simulation.results import SimulationResult
from calc.simulation.run import simulate
from calc.workload import Workload

CURVE_POINTS = 200
ON_SHARE = 0.2
"""Share of the time in which bursts arrive when traffic is on and off (assumed: five times the mean rate, then none)."""
BURST_S = 10.0
DAY_PEAK = 2.0
"""A day's peak over its mean where the scenario states none (assumed; Azure's conversation trace peaks at about 1.5)."""
SHORT_DAY_S = 600.0
RATE_FACTORS = (0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7)


class Source(StrEnum):
    """Where simulated requests come from."""

    SCENARIO = "the scenario"
    BURSTS = "bursts"
    DAY = "a day"
    PUBLISHED = "a public workload"
    TRACE = "an uploaded trace"


def generated(
    workload: Workload, source: Source, *, rate_per_s: float, count: int, seed: int
) -> RequestTable:
    """Requests of a workload at a mean rate: its own arrivals, bursts and silence, or a day in ten minutes.

    Users who wait (no rate) stay a closed loop whatever the source.
    """
    if workload.concurrency is not None:
        return arrivals.requests_of(workload, count=count, seed=seed)
    draw = np.random.default_rng(seed)
    if source is Source.BURSTS:
        times = arrivals.on_off_arrivals(
            draw, rate_per_s=rate_per_s, count=count, on_s=BURST_S, off_s=BURST_S * (1 - ON_SHARE) / ON_SHARE
        )
    elif source is Source.DAY:
        peak = workload.peak_factor if workload.peak_factor > 1 else DAY_PEAK
        times = arrivals.diurnal_arrivals(
            draw,
            rate_per_s=rate_per_s,
            count=count,
            peak_factor=peak,
            period_s=SHORT_DAY_S,
            cv=workload.arrival_cv,
        )
    else:
        times = arrivals.renewal_arrivals(draw, rate_per_s=rate_per_s, count=count, cv=workload.arrival_cv)
    return arrivals.open_requests(
        draw, times, prompt=workload.input, answer=workload.output, prefix_share=workload.prefix_share
    )


def run(
    result: Answer,
    requests: RequestTable,
    *,
    replicas: int,
    progress: Callable[[float], bool] | None = None,
    log_passes: int = 0,
) -> SimulationResult:
    """The requests through `replicas` of the answer's replica, under its engine's rules; raises where nothing serves."""
    if result.fleet is None:
        raise InputError("plan", result.verdict.reason, "only a plan that serves can be simulated")
    return simulate(
        requests,
        rules_of(result),
        clock_of(result),
        cluster=Cluster(replicas=replicas, router=Router.LEAST_OUTSTANDING),
        progress=progress,
        log_passes=log_passes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A cumulative distribution at evenly spread shares: `seconds[i]` is not exceeded by `share[i]` of the requests."""

    share: tuple[float, ...]
    seconds: tuple[float, ...]


def distribution(values_s: NDArray[np.float64]) -> Distribution:
    """The distribution of the values that are numbers; empty where there are none."""
    known = values_s[~np.isnan(values_s)]
    if known.size == 0:
        return Distribution(share=(), seconds=())
    share = np.linspace(0.0, 1.0, CURVE_POINTS)
    return Distribution(share=tuple(share.tolist()), seconds=tuple(np.quantile(known, share).tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """One rate of a sweep: offered, finished within every target, and the state that the run ended in."""

    rate_per_s: float
    goodput_per_s: float
    attainment: float
    state: str


def sweep(
    result: Answer, requests: RequestTable, *, replicas: int, progress: Callable[[float], bool] | None = None
) -> tuple[RatePoint, ...]:
    """The same requests offered faster and slower than now, each rate a run of its own."""
    slo = result.inputs.scenario.slo
    points = []
    for number, factor in enumerate(RATE_FACTORS):
        rate = requests.rate_per_s * factor
        ran = run(result, requests.stretched(1.0 / factor), replicas=replicas)
        points.append(
            RatePoint(
                rate_per_s=rate,
                goodput_per_s=ran.goodput_per_s(slo),
                attainment=ran.attainment(slo),
                state=str(ran.state),
            )
        )
        if progress is not None and not progress((number + 1) / len(RATE_FACTORS)):
            break
    return tuple(points)


def at_rate(workload: Workload, rate_per_s: float) -> Workload:
    """An open workload at another rate."""
    return replace(workload, rate_per_s=rate_per_s, concurrency=None)
