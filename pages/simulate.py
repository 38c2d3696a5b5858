"""Simulate traffic: percentiles and goodput of real arrivals on the planned replicas, request by request."""

from __future__ import annotations

import streamlit as st

from calc.result import Answer
from calc.simulation.features import Features
from calc.simulation.requests import RequestTable
from calc.traffic import Source, at_rate, generated
from calc.worked.run import worked_run
from pages._inputs import current_answer
from pages._levers import show_unserved
from pages._traffic_ideas import IDEA_KEYS, draw_held, idea_controls, show_ideas
from pages._traffic_parts import SWEPT, draw_downloads, draw_sweep, run_headline, show_run, simulated
from pages._ui import guarded, plain_text, show_ignored, show_title, show_worked_maths
from presets.traces import PUBLISHED, published, uploaded_trace

RAN = "_simulated"  # (what was asked, the `Ran`) of this session's last run
COUNTS = (1_000, 3_000, 10_000, 30_000, 100_000)
MAX_TRACE_MB = 64
ASKED_KEYS = ("sim_source", "sim_public", "sim_n", "sim_replicas", "sim_seed", *IDEA_KEYS)


def main() -> None:
    """Ask, run, read."""
    result = current_answer()
    if result.decode is None:
        show_unserved(result)
        return
    ran = st.session_state.get(RAN)
    asked = _asked(result)
    fresh = ran is not None and ran[0] == asked
    show_title(
        run_headline(result, ran[1]) if fresh else "What will users really feel? Simulate every request.",
        plain_text(
            f"{result.layout.label} per replica; the engine's own scheduling rules; times of {result.inputs.scenario.fidelity} fidelity."
        ),
    )
    requests, replicas = _controls(result)
    features = idea_controls(result)
    asked = _asked(result)
    guarded(lambda: _run(result, requests, replicas, features, asked))()
    guarded(lambda: draw_held(result, requests, features, replicas, asked))()
    ran = st.session_state.get(RAN)
    if requests is None:
        return
    if ran is None or ran[0] != asked:
        st.info(
            "Nothing was simulated for this question yet. Press **Simulate**.", icon=":material/play_circle:"
        )
        return
    found = ran[1].simulated
    show_run(result, found)
    show_ideas(found)
    guarded(lambda: draw_sweep(result, requests, replicas, features, asked))()
    draw_downloads(found)
    show_worked_maths(lambda: worked_run(result, found), key="sim-maths")
    show_ignored(
        "The network between user and server, and tokenisation.",
        "Spread of step times: equal steps take equal time.",
    )


def _asked(result: Answer) -> tuple[object, ...]:
    """All that a run depends on: a result is shown as long as this is what it was asked."""
    uploaded = st.session_state.get("sim_trace")
    trace = uploaded.file_id if uploaded is not None else None
    return (result.inputs.scenario, trace, *(st.session_state.get(key) for key in ASKED_KEYS))


def _controls(result: Answer) -> tuple[RequestTable | None, int]:
    planned = result.fleet.replicas if result.fleet else 1
    row = st.columns(4, vertical_alignment="bottom")
    source = Source(
        row[0].selectbox("Requests from", [str(one) for one in Source], key="sim_source", bind="query-params")
    )
    count = int(
        row[1].select_slider(
            "Requests", [str(n) for n in COUNTS], value="3000", key="sim_n", bind="query-params"
        )
    )
    replicas = int(
        row[2].number_input("Replicas (0: as planned)", 0, 10_000, 0, key="sim_replicas", bind="query-params")
    )
    seed = int(row[3].number_input("Seed", 0, 1_000_000, 0, key="sim_seed", bind="query-params"))
    return _requests(result, source, count, seed), replicas or planned


def _requests(result: Answer, source: Source, count: int, seed: int) -> RequestTable | None:
    workload = result.inputs.scenario.workload
    rate = result.fleet.rate_per_s if result.fleet else 1.0
    if source is Source.TRACE:
        uploaded = st.file_uploader(
            "A trace: CSV or JSON Lines, gzip or not", key="sim_trace", max_upload_size=MAX_TRACE_MB
        )
        if uploaded is None:
            return None
        return uploaded_trace(uploaded.getvalue(), name=uploaded.name, seed=seed).requests
    if source is Source.PUBLISHED:
        name = st.selectbox(
            "Workload", [one.name for one in PUBLISHED], key="sim_public", bind="query-params"
        )
        found = published(name)
        st.caption(
            plain_text(f"Generated from its published statistics, at the scenario's rate: {found.source}.")
        )
        workload = at_rate(found.workload(), rate) if rate > 0 else workload
    if rate <= 0:
        st.info(
            "No request arrives at 0 requests/s. Set a rate in the sidebar, under Workload, or upload a trace.",
            icon=":material/hourglass_empty:",
        )
        return None
    return generated(workload, source, rate_per_s=rate, count=count, seed=seed)


def _run(
    result: Answer,
    requests: RequestTable | None,
    replicas: int,
    features: Features,
    asked: tuple[object, ...],
) -> None:
    with st.container(horizontal=True):
        start = st.button(
            "Simulate", type="primary", icon=":material/play_arrow:", disabled=requests is None, key="sim-run"
        )
        st.button(
            "Stop",
            icon=":material/stop:",
            disabled=requests is None,
            key="sim-stop",
            help="Ends a run in progress.",
        )
    if not start or requests is None:
        return
    bar = st.progress(0.0, text="Simulating (the first run compiles the simulator, about 20 s)")

    def told(share: float, doing: str) -> None:
        bar.progress(min(1.0, share), text=doing)

    st.session_state[RAN] = (
        asked,
        simulated(result, requests, replicas=replicas, features=features, told=told),
    )
    st.session_state.pop(SWEPT, None)
    st.rerun()


main()
