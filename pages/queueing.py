"""Queueing: why latency explodes before the servers are full, on one queue with formulas and a simulation."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.curves import QueueCurve, SimulatedPoint, queue_curve, simulated_points
from calc.queueing import closed_forms
from calc.saturation import State, state_of
from calc.units import MS
from pages._figures import queue_figure, queue_finding
from pages._ui import (
    Metric,
    predict_first,
    show_chart,
    show_data,
    show_ignored,
    show_maths,
    show_metrics,
    show_title,
)

SIMULATED_REQUESTS = 20_000
SIMULATED_LOADS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
SEED = 1
TITLE_LOADS = (0.8, 0.95)


def main() -> None:
    """Load and service time by hand; everything else follows."""
    eighty, ninety_five = (
        closed_forms.mm1_mean_time_s(utilisation=load, service_s=1.0) for load in TITLE_LOADS
    )
    show_title(
        f"At 80% load the mean is {fmt.significant(eighty)} times the service time; at 95%, {fmt.significant(ninety_five)}.",
        "One server, requests at random (Poisson), exponential service: M/M/1. Replicas share the traffic at random.",
    )
    arrivals, service_s, replicas, limit_s = _controls()
    load = float(closed_forms.utilisation(arrivals_per_s=arrivals, service_s=service_s, servers=replicas))
    mean_s = float(closed_forms.mm1_mean_time_s(utilisation=load, service_s=service_s))
    _predict(arrivals, service_s, replicas, load)
    values = {
        "arrivals_per_s": arrivals,
        "service_s": service_s,
        "servers": replicas,
        "utilisation": load,
        "percentile": 95.0,
        "limit_s": limit_s,
        "time_in_system_s": mean_s,
    }
    show_metrics(_metrics(values))
    curve = queue_curve(service_s=service_s)
    dots = _simulated(service_s)
    show_chart(
        queue_figure(curve, load=load, limit_s=limit_s, dots=dots),
        alt=queue_finding(curve, load=load, mean_s=mean_s),
        key="queue-curve",
    )
    show_maths(
        ("utilisation", "mm1_mean_time_s", "mm1_time_quantile_s", "md1_mean_wait_s", "mm1_replicas_for"),
        values,
    )
    show_data(_rows(curve), key="queue-data", name="ridgebeam-queue")
    show_ignored(
        "Batching: an LLM server serves many sequences at once; *Simulate traffic* takes that into account.",
        "Bursts: arrivals are Poisson here. Routers that know the queues need fewer replicas than random ones.",
    )


def _predict(arrivals: float, service_s: float, replicas: int, load: float) -> None:
    now = closed_forms.mm1_mean_time_s(utilisation=load, service_s=service_s)
    faster = closed_forms.mm1_mean_time_s(utilisation=load / 2, service_s=service_s / 2)
    if state_of(load) is State.SATURATED:
        return
    predict_first(
        key="queueing",
        question=f"{fmt.significant(arrivals)} requests per second take {fmt.seconds(service_s)} each, on "
        f"{fmt.plural(replicas, 'replica')}. If each took half as long, how many times shorter would the mean time in "
        "the system be?",
        unit="times",
        answer=float(now / faster),
        reading=f"{fmt.factor(float(now / faster))} shorter",
        arithmetic=[
            (
                f"Now {fmt.seconds(service_s)} / (1 - {fmt.significant(load)}) = {fmt.seconds(float(now))}. Half the work also "
                f"halves the load: {fmt.seconds(service_s / 2)} / (1 - {fmt.significant(load / 2)}) = {fmt.seconds(float(faster))}."
            )
        ],
    )


def _controls() -> tuple[float, float, int, float]:
    row = st.columns(4, vertical_alignment="bottom")
    arrivals = row[0].number_input(
        "Requests per second", 0.1, 1e6, 40.0, format="%g", key="q_rate", bind="query-params"
    )
    service_ms = row[1].number_input(
        "Service time, ms", 0.01, 1e6, 20.0, format="%g", key="q_ms", bind="query-params"
    )
    replicas = row[2].number_input("Replicas", 1, 10_000, 1, key="q_n", bind="query-params")
    limit_ms = row[3].number_input(
        "p95 limit, ms", 0.01, 1e7, 150.0, format="%g", key="q_p95", bind="query-params"
    )
    with st.container(horizontal=True):
        st.button("Half the service time", on_click=_halve, icon=":material/bolt:", key="q-half")
        st.toggle(f"Simulate {fmt.count(SIMULATED_REQUESTS)} requests at each load", key="q-simulate")
    return float(arrivals), service_ms * MS, int(replicas), limit_ms * MS


def _halve() -> None:
    st.session_state["q_ms"] = st.session_state["q_ms"] / 2


@st.cache_data(max_entries=32, ttl="1h", show_spinner="Simulating")
def _points(service_s: float) -> tuple[SimulatedPoint, ...]:
    return simulated_points(
        service_s=service_s, loads=SIMULATED_LOADS, requests=SIMULATED_REQUESTS, seed=SEED
    )


def _simulated(service_s: float) -> tuple[SimulatedPoint, ...]:
    if not st.session_state.get("q-simulate"):
        return ()
    points = _points(service_s)
    little = next(point for point in points if point.utilisation == TITLE_LOADS[0])
    st.caption(
        f"Little's law, measured at {fmt.percent(little.utilisation)} load: arrival rate x mean time = "
        f"{fmt.significant(little.in_system)} requests in the system; the formula says 4."
    )
    return points


def _metrics(values: dict[str, float]) -> list[Metric]:
    load, service_s = values["utilisation"], values["service_s"]
    p95 = float(closed_forms.mm1_time_quantile_s(percentile=95, utilisation=load, service_s=service_s))
    in_system = closed_forms.requests_in_system(
        arrivals_per_s=values["arrivals_per_s"], time_in_system_s=values["time_in_system_s"]
    )
    needed = closed_forms.mm1_replicas_for(
        arrivals_per_s=values["arrivals_per_s"], service_s=service_s, percentile=95, limit_s=values["limit_s"]
    )
    saturated = state_of(load) is State.SATURATED
    return [
        Metric(label="Utilisation", reading=fmt.percent(load), help=str(state_of(load))),
        Metric(
            label="Mean time", reading="saturated" if saturated else fmt.seconds(values["time_in_system_s"])
        ),
        Metric(label="p95", reading="saturated" if saturated else fmt.seconds(p95)),
        Metric(
            label="In the system",
            reading="grows" if saturated else fmt.significant(float(in_system)),
            help="Little's law.",
        ),
        Metric(
            label="Replicas for the limit",
            reading=fmt.significant(float(needed)),
            help="Smallest number whose p95 keeps the limit.",
        ),
    ]


def _rows(curve: QueueCurve) -> list[dict[str, float]]:
    columns = (curve.utilisation, curve.mean_s, curve.p95_s, curve.p99_s, curve.even_mean_s)
    names = ("utilisation", "mean_s", "p95_s", "p99_s", "md1_mean_s")
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


main()
