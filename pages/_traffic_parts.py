"""Parts of *Simulate traffic*: what a run says, where it breaks, what to take away."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from calc import format as fmt
from calc.result import Answer
from calc.simulation.export import chrome_trace, request_lines
from calc.simulation.features import Features
from calc.simulation.requests import RequestTable
from calc.simulation.results import SimulationResult
from calc.traffic import breaking_rate, distribution, run, sweep
from calc.worked.run import worked_goodput
from pages._traffic_figure import (
    distribution_figure,
    distribution_finding,
    goodput_figure,
    goodput_finding,
    series_figure,
    series_finding,
)
from pages._ui import Metric, show_chart, show_metrics

SWEPT = "_swept"
MOST_IN_TRACE = 5_000
LOGGED_PASSES = 20_000
MOST_SEARCHED = 10_000  # requests of which a dozen more runs take a second or two
TYPICAL_TRIALS = 12


EACH = "the simulated requests keep it, counted; *Requests (CSV)*, below, has each of them."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run, and the rate above which the promise breaks: None if no rate keeps it, or if `searched` is false."""

    simulated: SimulationResult
    searched: bool = False
    breaks_above_per_s: float | None = None


def simulated(
    result: Answer,
    requests: RequestTable,
    *,
    replicas: int,
    features: Features,
    told: Callable[[float, str], None],
) -> Ran:
    """The run with its log, and where it would break if there is a promise and a rate to raise; `told` hears the share done."""

    def running(share: float) -> bool:
        told(share, f"Simulating: {fmt.percent(share)}")
        return True

    ran = run(
        result, requests, replicas=replicas, features=features, progress=running, log_passes=LOGGED_PASSES
    )
    scenario = result.inputs.scenario
    promised = not (scenario.slo.ttft_s is scenario.slo.tpot_s is scenario.slo.e2e_s is None)
    if not promised or scenario.workload.rate_per_s is None or len(requests) > MOST_SEARCHED:
        return Ran(simulated=ran)

    def trying(tried: int) -> None:
        told(min(0.95, tried / TYPICAL_TRIALS), "Looking for the rate at which it breaks")

    breaks = breaking_rate(result, requests, features, replicas=replicas, told=trying)
    return Ran(simulated=ran, searched=True, breaks_above_per_s=breaks)


def run_headline(result: Answer, ran: Ran) -> str:
    """The run in one sentence: what the slowest feel, and where the promise breaks."""
    found, breaks = ran.simulated, ran.breaks_above_per_s
    if not ran.searched:
        end = f"{fmt.percent(found.attainment(result.inputs.scenario.slo))} of requests meet every target"
    elif breaks is None:
        end = "no rate keeps the promise"
    else:
        end = f"the promise breaks above {fmt.significant(breaks)}"
    return (
        f"At {fmt.plain(found.arrivals_per_s, 'requests/s')} the p99 TTFT is "
        f"{fmt.optional(found.spread('ttft_s').p99, fmt.seconds)}; {end}"
        f"{'; the system is saturated' if found.state == 'saturated' else ''}."
    )


def show_run(result: Answer, ran: SimulationResult) -> None:
    """Percentiles, distributions, and the system over time."""
    slo = result.inputs.scenario.slo
    ttft, tpot = ran.spread("ttft_s"), ran.spread("tpot_s")
    show_metrics(
        [
            Metric(label="TTFT p50", reading=fmt.optional(ttft.p50, fmt.seconds), help=f"Half of {EACH}"),
            Metric(
                label="TTFT p99", reading=fmt.optional(ttft.p99, fmt.seconds), help=f"99 of 100 of {EACH}"
            ),
            Metric(
                label="TPOT p99",
                reading=fmt.optional(tpot.p99, fmt.seconds, "one token each"),
                help=f"99 of 100 of {EACH}",
            ),
            Metric(
                label="Goodput",
                reading=fmt.plain(ran.goodput_per_s(slo), "req/s"),
                help=f"Requests per second that met every target: {fmt.percent(ran.attainment(slo))} of them did.",
                worked=worked_goodput(result, ran),
            ),
            Metric(
                label="State",
                reading=str(ran.state),
                help=f"Busy {fmt.percent(ran.utilization)} of the time.",
            ),
        ]
    )
    left, right = st.columns(2)
    for column, name, field, target in (
        (left, "TTFT", "ttft_s", slo.ttft_s),
        (right, "TPOT", "tpot_s", slo.tpot_s),
    ):
        found = distribution(getattr(ran, field))
        if found.seconds:
            with column:
                made = distribution_figure(name, found, target)
                show_chart(made, alt=distribution_finding(name, ran, field, target), key=f"sim-{field}")
    made = series_figure(ran.series, ran.num_blocks, ran.replicas)
    show_chart(made, alt=series_finding(ran), key="sim-series")


def draw_sweep(
    result: Answer,
    requests: RequestTable | None,
    replicas: int,
    features: Features,
    asked: tuple[object, ...],
) -> None:
    """The same requests faster and slower, when asked for."""
    if requests is None or result.inputs.scenario.workload.rate_per_s is None:
        return
    if st.button("Where does it break?", icon=":material/trending_up:", key="sim-sweep"):
        bar = st.progress(0.0, text="Trying rates")

        def told(share: float) -> bool:
            bar.progress(share, text=f"Trying rates: {fmt.percent(share)}")
            return True

        st.session_state[SWEPT] = (
            asked,
            sweep(result, requests, replicas=replicas, features=features, progress=told),
        )
        bar.empty()
    swept = st.session_state.get(SWEPT)
    if swept is not None and swept[0] == asked:
        points = swept[1]
        made = goodput_figure(points, requests.rate_per_s)
        show_chart(made, alt=goodput_finding(points, result.inputs.scenario.slo), key="sim-goodput")


def draw_downloads(ran: SimulationResult) -> None:
    """Every request as CSV, and the schedule for a trace viewer."""
    with st.container(horizontal=True):
        st.download_button(
            "Requests (CSV)",
            lambda: "".join(request_lines(ran)),
            "ridgebeam-requests.csv",
            "text/csv",
            key="sim-csv",
            on_click="ignore",
        )
        if len(ran) <= MOST_IN_TRACE:
            st.download_button(
                "Schedule (trace viewer)",
                lambda: json.dumps(chrome_trace(ran)),
                "ridgebeam-schedule.json",
                "application/json",
                key="sim-schedule",
                on_click="ignore",
                help="Open it in Perfetto or chrome://tracing.",
            )
