"""Step time from a log of served requests: at most six numbers, fitted by simulating the log.

The log says when requests came, how long they were, and when their first and last tokens came out. The whole of it is
simulated under the engine's rules with a trial step time; the trial is judged by the latencies of the first requests
(all, or as many as are to be fitted), and improved by the simplex method of Nelder and Mead over the logarithms of
the numbers, which are positive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calc.errors import InputError
from calc.simulation.requests import RequestTable
from calc.simulation.results import SimulationResult
from calc.simulation.rules import EngineRules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable

Floats = npt.NDArray[np.float64]

NAMES = ("fixed_s", "prefill_s", "decode_s", "kv_s", "attention_s", "mixed_s")
START = (
    15e-3,
    8e-5,
    2e-5,
    1e-7,
    5e-10,
    1e-3,
)  # an 8B model on a card of a thousand GB/s; only where the search begins
FEWEST = 20
JUDGED = (
    (None, 2.0),
    (50.0, 1.0),
    (90.0, 1.0),
    (99.0, 1.0),
)  # mean (None) and percentiles, with their weights
TOLERANCE = 1e-7


@dataclass(frozen=True, kw_only=True, eq=False)
class ServedLog:
    """What a server did: requests, and the first and last token of each on the same clock, in seconds."""

    requests: RequestTable
    first_s: Floats
    last_s: Floats

    def __post_init__(self) -> None:
        if len(self.first_s) != len(self.requests) or len(self.last_s) != len(self.requests):
            raise InputError(
                "log", len(self.first_s), f"it must have {len(self.requests)} first and last tokens"
            )
        if np.any(self.first_s <= self.requests.arrival_s) or np.any(self.last_s < self.first_s):
            raise InputError(
                "log", "tokens out of order", "each request arrives before its first and its last token"
            )

    def latencies(self, chosen: slice) -> tuple[Floats, ...]:
        """(TTFT, TPOT, end to end) of the chosen requests; TPOT only of those with two tokens or more."""
        return _latencies(
            self.requests.arrival_s, self.first_s, self.last_s, self.requests.output_tokens, chosen
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """The fitted step time, its numbers by name, and the run that it gives."""

    step: StepTable
    numbers: dict[str, float]
    error: float
    result: SimulationResult


def _latencies(
    arrival: Floats, first: Floats, last: Floats, output: npt.NDArray[np.integer], chosen: slice
) -> tuple[Floats, ...]:
    arrival, first, last, gaps = arrival[chosen], first[chosen], last[chosen], output[chosen] - 1
    several = gaps > 0
    return first - arrival, (last[several] - first[several]) / gaps[several], last - arrival


def relative_errors(log: ServedLog, result: SimulationResult, chosen: slice) -> dict[str, dict[str, float]]:
    """Simulated over served minus 1, for mean, p50, p90 and p99 of each latency."""
    simulated = _latencies(
        result.arrival_s, result.first_s, result.last_s, log.requests.output_tokens, chosen
    )
    errors: dict[str, dict[str, float]] = {}
    for name, ours, theirs in zip(
        ("ttft_s", "tpot_s", "e2e_s"), simulated, log.latencies(chosen), strict=True
    ):
        errors[name] = {
            "mean" if p is None else f"p{p:.0f}": _point(ours, p) / _point(theirs, p) - 1 for p, _ in JUDGED
        }
    return errors


def _point(values: Floats, percentile: float | None) -> float:
    return float(values.mean() if percentile is None else np.percentile(values, percentile))


def calibrate(
    log: ServedLog,
    rules: EngineRules,
    *,
    first: int | None = None,
    start: StepTable | None = None,
    trials: int = 400,
    compiled: bool = True,
) -> Fit:
    """Fit the six numbers of an affine step time to the first `first` requests of a log.

    `start`: an affine table to begin with, for instance that of the step model.
    """
    count = len(log.requests) if first is None else first
    if not FEWEST <= count <= len(log.requests):
        raise InputError("requests to fit", count, f"give from {FEWEST} to {len(log.requests)}")
    chosen = slice(0, count)

    def run(logarithms: Floats) -> tuple[StepTable, SimulationResult]:
        values = np.exp(logarithms)
        step = StepTable.affine(**dict(zip(NAMES, map(float, values), strict=True)))
        return step, simulate(log.requests, rules, step, compiled=compiled)

    def cost(logarithms: Floats) -> float:
        if np.any(np.abs(logarithms) > 60):
            return float("inf")
        errors = relative_errors(log, run(logarithms)[1], chosen)
        weights = {"mean" if p is None else f"p{p:.0f}": w for p, w in JUDGED}
        missed = [
            weights[kind] * np.log1p(value) for points in errors.values() for kind, value in points.items()
        ]
        return float(np.sum(np.square(missed)))

    begin = np.log(START if start is None else _numbers(start))
    best, least = minimise(cost, begin, trials=trials)
    step, result = run(best)
    return Fit(
        step=step, numbers=dict(zip(NAMES, map(float, np.exp(best)), strict=True)), error=least, result=result
    )


def _numbers(step: StepTable) -> tuple[float, ...]:
    """The six numbers nearest to a table: differences between few steps of common size."""
    fixed = step.seconds(0, 1)
    decode = max((step.seconds(0, 64) - fixed) / 63, 1e-9)
    alone = step.seconds(256, 0)
    prefill = max((step.seconds(2048, 0) - alone) / (2048 - 256), 1e-9)
    mixed = max(step.seconds(2048, 64) - step.seconds(2048, 0) - 64 * decode, 1e-6)
    return (
        max(fixed - decode, 1e-6),
        prefill,
        decode,
        max(step.kv_s, 1e-12),
        max(step.attention_s, 1e-14),
        mixed,
    )


def minimise(cost: Callable[[Floats], float], begin: Floats, *, trials: int) -> tuple[Floats, float]:
    """Nelder and Mead's simplex (Computer Journal 7, 1965): reflect, expand, contract, shrink."""
    size = len(begin)
    simplex = np.vstack([begin, begin + 0.4 * np.eye(size)])
    costs = np.array([cost(point) for point in simplex])
    used = len(costs)
    while used < trials and np.ptp(costs) > TOLERANCE:
        order = np.argsort(costs, kind="stable")
        simplex, costs = simplex[order], costs[order]
        centre = simplex[:-1].mean(axis=0)
        reflected = centre + (centre - simplex[-1])
        at_reflected = cost(reflected)
        used += 1
        if at_reflected < costs[0]:
            expanded = centre + 2 * (centre - simplex[-1])
            at_expanded = cost(expanded)
            used += 1
            better = at_expanded < at_reflected
            simplex[-1], costs[-1] = (expanded, at_expanded) if better else (reflected, at_reflected)
        elif at_reflected < costs[-2]:
            simplex[-1], costs[-1] = reflected, at_reflected
        else:
            towards = reflected if at_reflected < costs[-1] else simplex[-1]
            contracted = (centre + towards) / 2
            at_contracted = cost(contracted)
            used += 1
            if at_contracted < min(at_reflected, costs[-1]):
                simplex[-1], costs[-1] = contracted, at_contracted
            else:
                simplex[1:] = (simplex[1:] + simplex[0]) / 2
                costs[1:] = [cost(point) for point in simplex[1:]]
                used += size
    best = int(np.argmin(costs))
    return simplex[best], float(costs[best])
