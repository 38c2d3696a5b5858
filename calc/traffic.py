"""Traffic through the simulator for people to look at: where requests come from, one run, and what its charts need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from calc import format as fmt
from calc.errors import InputError
from calc.proof import clock_of, rules_of, server_s_of
from calc.result import Answer
from calc.simulation import workload as arrivals
from calc.simulation.capacity import Capacity, Searched, Trial, fewest_replicas, largest_rate
from calc.simulation.cluster import Router
from calc.simulation.features import Features
from calc.simulation.requests import RequestTable
from calc.simulation.results import SimulationResult
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable
from calc.slo import Slo
from calc.workload import Workload

CURVE_POINTS = 200
PLAIN = Features(router=Router.LEAST_OUTSTANDING)
"""An engine's own rules, and the replica with the fewest requests for each newcomer."""
ON_SHARE = 0.2
"""Share of the time in which bursts arrive when traffic is on and off (assumed: five times the mean rate, then none)."""
BURST_S = 10.0
DAY_PEAK = 2.0
"""A day's peak over its mean where the scenario states none (assumed; Azure's conversation trace peaks at about 1.5)."""
SHORT_DAY_S = 600.0
RATE_PRECISION = 0.02
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
        draw,
        times,
        prompt=workload.input,
        answer=workload.output,
        prefix_share=workload.prefix_share,
        texts=arrivals.texts_of(workload),
    )


def run(
    result: Answer,
    requests: RequestTable,
    *,
    replicas: int,
    features: Features = PLAIN,
    progress: Callable[[float], bool] | None = None,
    log_passes: int = 0,
) -> SimulationResult:
    """The requests through `replicas` of the answer's replica, under its engine's rules with `features` added.

    Raises InputError where nothing serves, or the engine does not have a feature.
    """
    step = _clock(result)
    rules = features.rules(rules_of(result), step)
    return simulate(
        requests,
        rules,
        clock_of(result, drafts=rules.drafts) if rules.drafts else step,
        cluster=features.cluster(replicas, seed=0, server_s=server_s_of(result)),
        progress=progress,
        log_passes=log_passes,
    )


def _clock(result: Answer) -> StepTable:
    if result.fleet is None:
        raise InputError("plan", result.verdict.reason, "only a plan that serves can be simulated")
    return clock_of(result)


def ideas_told(ran: SimulationResult) -> tuple[str, ...]:
    """What pools, drafts, tiers and prefixes did in a run, a sentence each; empty where there were none."""
    lines = []
    waits = ran.transfer_s[~np.isnan(ran.transfer_s)]
    if waits.size:
        lines.append(
            f"Between pools: from the first token to the arrival of its cache a request waited {fmt.seconds(float(waits.mean()))} on average, "
            f"{fmt.seconds(float(np.quantile(waits, 0.99)))} at the 99th percentile; the second token shows it."
        )
    if ran.drafted_passes:
        lines.append(f"Drafts: {ran.tokens_per_pass:.2f} tokens a pass and sequence.")
    prompts = int(ran.input_tokens.sum())
    if ran.loaded_blocks:
        lines.append(
            f"Host memory: {fmt.percent(float(ran.loaded_tokens.sum()) / prompts)} of prompt tokens were loaded."
        )
    if ran.cached_tokens.any():
        lines.append(
            f"Prefix cache: {fmt.percent(float(ran.cached_tokens.sum()) / prompts)} of prompt tokens were on the card."
        )
    return tuple(lines)


def holding_replicas(
    result: Answer,
    requests: RequestTable,
    features: Features,
    *,
    planned: int,
    told: Callable[[int, int], None] | None = None,
) -> Capacity:
    """The fewest replicas that hold the scenario's targets for these requests, up to four times the planned and 16.

    `told` hears after each trial how many there were, and its replicas. A prefill pool keeps its size.
    """
    tried: list[int] = []

    def note(trial: Trial) -> None:
        tried.append(trial.replicas)
        if told is not None:
            told(len(tried), trial.replicas)

    searched = _searched(result, requests, features, replicas=1)
    return fewest_replicas(searched, most=max(16, 4 * planned), told=note)


def breaking_rate(
    result: Answer,
    requests: RequestTable,
    features: Features,
    *,
    replicas: int,
    told: Callable[[int], None] | None = None,
) -> float | None:
    """The largest rate, within 2%, at which the same requests hold the scenario's targets on `replicas`; None if none does.

    `told` hears after each trial how many there were. The number of requests stays: a rate that would only fail after a
    longer time counts as held.
    """
    tried: list[float] = []

    def note(trial: Trial) -> None:
        tried.append(trial.rate_per_s)
        if told is not None:
            told(len(tried))

    found = largest_rate(
        _searched(result, requests, features, replicas=replicas),
        replicas=replicas,
        precision=RATE_PRECISION,
        told=note,
    )
    return None if found.best is None else found.best.rate_per_s


def _searched(result: Answer, requests: RequestTable, features: Features, *, replicas: int) -> Searched:
    step = _clock(result)
    return Searched(
        requests=requests,
        rules=features.rules(rules_of(result), step),
        step=step,
        slo=result.inputs.scenario.slo,
        cluster=features.cluster(replicas, seed=0, server_s=server_s_of(result)),
    )


def held_by(capacity: Capacity, slo: Slo) -> str:
    """The search for replicas in a sentence."""
    measure = "as means" if slo.percentile is None else f"at the {slo.percentile:g}th percentile"
    tried = max(trial.replicas for trial in capacity.trials)
    if capacity.best is None:
        return f"Not even {fmt.plural(tried, 'replica')} hold the targets {measure}."
    replicas = capacity.best.replicas
    less = "" if replicas == 1 else f"; {replicas - 1} would not"
    return f"{fmt.plural(replicas, 'replica')} {'holds' if replicas == 1 else 'hold'} the targets {measure}{less}."


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
    result: Answer,
    requests: RequestTable,
    *,
    replicas: int,
    features: Features = PLAIN,
    progress: Callable[[float], bool] | None = None,
) -> tuple[RatePoint, ...]:
    """The same requests offered faster and slower than now, each rate a run of its own."""
    slo = result.inputs.scenario.slo
    points = []
    for number, factor in enumerate(RATE_FACTORS):
        rate = requests.rate_per_s * factor
        ran = run(result, requests.stretched(1.0 / factor), replicas=replicas, features=features)
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
