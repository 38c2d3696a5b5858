"""Parts of *Queueing*: arrivals, service and replicas as numbers, the load to move, and the simulation."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.asked_queue import AskedQueue, arrivals_at
from calc.queue_curves import QueueKind, SimulatedPoint, simulated_points
from calc.units import MS, PERCENT

MOST_LOAD_SHOWN = 120.0
FASTEST_PER_S = 1e6
SIMULATED_REQUESTS = 20_000
SIMULATED_LOADS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
TOLD_LOAD = 0.8
SEED = 1


def draw_controls() -> AskedQueue:
    """The queue in numbers; the load's slider moves the arrivals."""
    kind = QueueKind(
        st.selectbox("Queue", [str(one) for one in QueueKind], key="q_kind", bind="query-params")
    )
    row = st.columns(4, vertical_alignment="bottom")
    arrivals = row[0].number_input(
        "Requests per second", 0.001, FASTEST_PER_S, 40.0, format="%g", key="q_rate", bind="query-params"
    )
    service_ms = row[1].number_input(
        "Service time, ms", 0.01, 1e6, 20.0, format="%g", key="q_ms", bind="query-params"
    )
    replicas = row[2].number_input("Replicas", 1, 10_000, 1, key="q_n", bind="query-params")
    limit_ms = row[3].number_input(
        "p95 limit, ms", 0.01, 1e7, 150.0, format="%g", key="q_p95", bind="query-params"
    )
    asked = AskedQueue(
        kind=kind,
        arrivals_per_s=float(arrivals),
        service_s=service_ms * MS,
        replicas=int(replicas),
        limit_s=limit_ms * MS,
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.session_state["q-load"] = min(MOST_LOAD_SHOWN, max(1.0, 100 * asked.load))
        st.slider(
            "Load, %",
            1.0,
            MOST_LOAD_SHOWN,
            key="q-load",
            step=0.5,
            format="%.0f",
            width="stretch",
            on_change=_move_load,
            help="Moves the requests per second.",
        )
        st.button("Half the service time", on_click=_halve, icon=":material/bolt:", key="q-half")
    return asked


def _move_load() -> None:
    state = st.session_state
    load, servers, service_s = state["q-load"] * PERCENT, state["q_n"], state["q_ms"] * MS
    rate = arrivals_at(load=load, service_s=service_s, servers=servers)
    state["q_rate"] = float(f"{min(FASTEST_PER_S, rate):.6g}")


def _halve() -> None:
    st.session_state["q_ms"] = st.session_state["q_ms"] / 2


@st.cache_data(max_entries=32, ttl="1h", show_spinner="Simulating")
def _points(kind: QueueKind, service_s: float, replicas: int) -> tuple[SimulatedPoint, ...]:
    return simulated_points(
        kind,
        service_s=service_s,
        servers=replicas,
        loads=SIMULATED_LOADS,
        requests=SIMULATED_REQUESTS,
        seed=SEED,
    )


def draw_simulation(asked: AskedQueue) -> tuple[SimulatedPoint, ...]:
    """The same queue simulated, when asked for, and how far it is from its formula."""
    if not st.toggle(f"Simulate {fmt.count(SIMULATED_REQUESTS)} requests at each load", key="q-simulate"):
        return ()
    shared = asked.replicas if asked.kind is QueueKind.MMC else 1
    points = _points(asked.kind, asked.service_s, shared)
    told = next(point for point in points if point.utilisation == TOLD_LOAD)
    st.caption(
        f"At {fmt.percent(TOLD_LOAD)} load the simulated mean is {fmt.seconds(told.mean_s)}, "
        f"{fmt.significant(told.errors_apart, 2)} standard errors from the formula's {fmt.seconds(told.formula_mean_s)} "
        f"(batch means). Little's law: {fmt.significant(told.arrivals_per_s)} arrivals per second x "
        f"{fmt.seconds(told.whole_mean_s)} = {fmt.significant(told.by_littles_law)} requests in the "
        f"system; counted over time: {fmt.significant(told.in_system)}."
    )
    return points
