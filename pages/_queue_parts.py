"""Parts of *Queueing*: arrivals, service and replicas as numbers, the load to move, and the simulation."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from calc import format as fmt
from calc.queue_curves import QueueKind, SimulatedPoint, TimedQueue, queue_of, simulated_points
from calc.queueing import closed_forms, erlang_c
from calc.units import MS

MOST_LOAD_SHOWN = 120.0
FASTEST_PER_S = 1e6
SIMULATED_REQUESTS = 20_000
SIMULATED_LOADS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
TOLD_LOAD = 0.8
SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One queue: its kind, its traffic and its servers."""

    kind: QueueKind
    arrivals_per_s: float
    service_s: float
    replicas: int
    limit_s: float

    @property
    def load(self) -> float:
        return float(
            closed_forms.utilisation(
                arrivals_per_s=self.arrivals_per_s, service_s=self.service_s, servers=self.replicas
            )
        )

    @property
    def queue(self) -> TimedQueue:
        return queue_of(self.kind, load=self.load, service_s=self.service_s, servers=self.replicas)

    def symbols(self) -> dict[str, float]:
        """What the page's formulas are written in."""
        offered = self.arrivals_per_s * self.service_s
        return {
            "arrivals_per_s": self.arrivals_per_s,
            "service_s": self.service_s,
            "size_s": self.service_s,
            "servers": self.replicas,
            "utilisation": self.load,
            "offered_load": offered,
            "waiting_share": erlang_c(offered_load=offered, servers=self.replicas),
            "arrival_scv": 1.0,
            "service_scv": 1.0,
            "percentile": 95.0,
            "limit_s": self.limit_s,
            "time_in_system_s": self.queue.mean_time_s,
        }


def draw_controls() -> Asked:
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
    asked = Asked(
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
    rate = state["q-load"] / 100 * state["q_n"] / (state["q_ms"] * MS)
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


def draw_simulation(asked: Asked) -> tuple[SimulatedPoint, ...]:
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
        f"{fmt.seconds(told.whole_mean_s)} = {fmt.significant(told.arrivals_per_s * told.whole_mean_s)} requests in the "
        f"system; counted over time: {fmt.significant(told.in_system)}."
    )
    return points
