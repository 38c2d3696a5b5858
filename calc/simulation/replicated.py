"""The same experiment with many seeds, or many experiments at once, through an `Executor`.

A task carries everything that it needs and gives a small summary back, so that it can run on another machine, and
again if that machine is lost, with the same outcome to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from calc.errors import InputError
from calc.executor import Executor
from calc.simulation.cluster import Cluster
from calc.simulation.requests import RequestTable
from calc.simulation.results import Quantiles, SimulationResult
from calc.simulation.rules import EngineRules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable
from calc.simulation.workload import requests_of
from calc.slo import Slo
from calc.workload import Workload

# Student's t at 97.5%, by degrees of freedom from 1 to 30; 1.96 beyond (any table of the distribution)
_T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """One run to make: given requests, or `count` of them made up from `workload` with `seed`.

    samples: answers, or beams, that are written to each prompt at once.
    """

    rules: EngineRules
    step: StepTable
    requests: RequestTable | None = None
    workload: Workload | None = None
    count: int = 10_000
    think_s: float = 0.0
    samples: int = 1
    cluster: Cluster = Cluster()  # noqa: RUF009 - frozen, without arguments
    slo: Slo = Slo()  # noqa: RUF009 - the same
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.requests is None) == (self.workload is None):
            raise InputError("experiment", "requests and workload", "give exactly one of the two")

    def table(self) -> RequestTable:
        """The requests of this experiment."""
        made = self.requests
        if made is None:
            if self.workload is None:
                raise InputError("workload", None, "it must be given")
            made = requests_of(self.workload, count=self.count, seed=self.seed, think_s=self.think_s)
        return replace(made, samples=np.full(len(made), self.samples)) if self.samples > 1 else made

    def run(self, **how: Any) -> SimulationResult:
        """Simulate it; `how` goes to `simulate`."""
        cluster = replace(self.cluster, seed=self.seed)
        return simulate(self.table(), self.rules, self.step, cluster=cluster, **how)


def summary(result: SimulationResult, slo: Slo) -> dict[str, Any]:
    """A run in a few numbers; latencies over all of its requests."""
    return {
        "requests": len(result),
        "ttft_s": result.spread("ttft_s").as_json(),
        "tpot_s": result.spread("tpot_s").as_json(),
        "e2e_s": result.spread("e2e_s").as_json(),
        "itl_s": result.itl().as_json(),
        "longest_gap_s": result.longest_gap_s,
        "preemptions": result.preemptions,
        "steps": result.steps,
        "transfer_s": Quantiles.of(result.transfer_s[~np.isnan(result.transfer_s)]).as_json(),
        "tokens_per_pass": result.tokens_per_pass,
        "cached_tokens": int(result.cached_tokens.sum()),
        "loaded_tokens": int(result.loaded_tokens.sum()),
        "swap_outs": result.swap_outs,
        "beams_dropped": result.beams_dropped,
        "beam_copies": result.beam_copies,
        "goodput_per_s": result.goodput_per_s(slo),
        "attainment": result.attainment(slo),
        "output_tokens_per_s": result.output_tokens_per_s,
        "prefix_hit_rate": result.prefix_hit_rate,
        "peak_kv_share": result.peak_blocks / result.num_blocks,
        "utilization": result.utilization,
        "warm_up_requests": int(len(result) - np.count_nonzero(result.measured)),
        "state": str(result.state),
    }


def run_experiment(experiment: Experiment) -> dict[str, Any]:
    """The task that an executor runs."""
    return summary(experiment.run(), experiment.slo)


def run_all(experiments: Sequence[Experiment], executor: Executor) -> list[dict[str, Any]]:
    """Summaries of many experiments, in their order."""
    return executor.map(run_experiment, experiments)


def repeated(experiment: Experiment, times: int) -> list[Experiment]:
    """The experiment with `times` consecutive seeds."""
    if not 1 <= times <= 100_000:
        raise InputError("repeats", times, "it must be from 1 to 100,000")
    return [replace(experiment, seed=experiment.seed + i) for i in range(times)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Mean over independent runs with its 95% confidence interval (Student's t)."""

    mean: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """From one value a run; with a single run the interval is the value."""
        count, mean = len(values), float(np.mean(values))
        if count < 2:
            return cls(mean=mean, low=mean, high=mean, runs=count)
        t = _T975[count - 2] if count - 2 < len(_T975) else 1.96
        half = t * float(np.std(values, ddof=1)) / sqrt(count)
        return cls(mean=mean, low=mean - half, high=mean + half, runs=count)

    def as_json(self) -> dict[str, float]:
        return {"mean": self.mean, "low": self.low, "high": self.high, "runs": self.runs}
