"""The whole path on the page This GPU: the reference engine's ideas off and on, measured here, beside their predictions."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from calc import format as fmt
from calc.errors import ProbeError
from pages._probe_job import ERROR_KEY, JOB_KEY
from pages._sidebar import current_scenario
from pages._ui import plain_text, show_data
from presets.deployment import may_probe
from presets.written import written
from probes import jobs, store
from probes.store import Run
from probes.whole_path_line import WHOLE_PATH, WholePathLine

TITLES = {
    "cache": "With and without a KV cache",
    "weights": "Before and after quantisation",
    "drafts": "Speculative decoding",
    "levels": "Static against continuous batching",
    "mixed": "The same with answers of mixed lengths, 16 users",
}
NOTES = {
    "cache": "256 tokens after a prompt of 32.",
    "weights": "Weight-only formats shrink memory; without a kernel of their own they do not make a pass faster here.",
    "drafts": "Tokens of one checking pass; predicted is (1 - a^(k+1))/(1 - a) at the acceptance of single drafts.",
    "levels": "Prompts of 64 tokens, answers of 16, by the load test of the page An endpoint, on a server of its own.",
    "mixed": "A static batch computes until its longest answer is done.",
}


def draw_whole_path(runs: Sequence[Run]) -> None:
    """The newest run that holds the whole path; before one, what it would tell and the button."""
    st.header("Whole path", anchor=False)
    run = next((one for one in runs if store.cases_of(one, WHOLE_PATH)), None)
    if run is None:
        st.markdown(
            "A small decoder with random weights runs every serving idea for real on this device: KV cache, quantised weights, "
            "drafts, static and continuous batching behind HTTP. Each number then stands beside what the step model and the "
            "simulator predict from this device's own rates. Nothing is shown before it has been measured."
        )
    else:
        lines = _lines(run["id"], written(store.path_of(run["id"])))
        st.markdown(plain_text(finding(lines)))
        _draw_tables(run, lines)
    if may_probe() and jobs.current() is None:
        st.button(
            "Measure the whole path" if run is None else "Measure the whole path again",
            icon=":material/route:",
            on_click=_start,
            key="whole_path_start",
            help="Takes two to five minutes, in processes of its own. A server is started on 127.0.0.1 and ended again.",
        )


def _start() -> None:
    device = str(st.session_state.get("probe_device") or "auto")
    try:
        st.session_state[JOB_KEY] = jobs.start(
            jobs.whole_path_request(device=device, model=current_scenario().model)
        )
    except ProbeError as error:
        st.session_state[ERROR_KEY] = error


@st.cache_data(show_spinner="Predicting from the measured rates", max_entries=8)
def _lines(run_id: str, when: str) -> list[WholePathLine]:  # noqa: ARG001  part of what is kept by
    """Of a run as it was written then: another may be imported under its id."""
    return store.whole_path(store.load(run_id))


def finding(lines: Sequence[WholePathLine]) -> str:
    """What the run says, in a sentence or two; only of what was measured."""
    found = {(line.table, line.what): line for line in lines}
    parts = []
    without, cached = found.get(("cache", "without a cache")), found.get(("cache", "with a cache"))
    if without and cached:
        parts.append(
            f"A cache makes 256 tokens {fmt.factor(without.times(cached))} as fast "
            f"({fmt.seconds(cached.measured)} instead of {fmt.seconds(without.measured)})."
        )
    static, continuous = found.get(("mixed", "static")), found.get(("mixed", "continuous"))
    if static and continuous:
        parts.append(
            f"Continuous batching gives {fmt.factor(continuous.times(static))} the tokens per second of static "
            "batches when answers differ in length."
        )
    slower = sorted(
        line.slowness for line in lines if line.slowness and line.table in {"cache", "levels", "mixed"}
    )
    if slower:
        parts.append(
            f"Measured takes {fmt.factor(slower[0])} to {fmt.factor(slower[-1])} the time that the device's rates alone predict."
        )
    return " ".join(parts) or "The run ended before a line of these tables was complete."


def _draw_tables(run: Run, lines: Sequence[WholePathLine]) -> None:
    case = store.cases_of(run, WHOLE_PATH)[0]
    shape = case["parameters"]["config"]
    st.caption(
        plain_text(
            f"{run['started'][:16].replace('T', ' ')}, {run['device'].get('name')}: random weights in "
            f"{case['parameters']['dtype']}, {shape['num_hidden_layers']} layers of width {shape['hidden_size']}, after "
            f"{case['parameters']['source']}."
        )
    )
    for table, title in TITLES.items():
        own = [line for line in lines if line.table == table]
        if not own:
            continue
        st.markdown(f"**{title}**")
        rows = [_row(line) for line in own]
        if not any(line.note for line in own):
            rows = [{name: value for name, value in row.items() if name != "note"} for row in rows]
        st.dataframe(rows, hide_index=True, key=f"whole-path-{table}")
        st.caption(NOTES[table])
    show_data(
        lambda: [_plain(line) for line in lines],
        key="whole-path-data",
        name=f"ridgebeam-whole-path-{run['id']}",
    )


def _row(line: WholePathLine) -> dict[str, str]:
    return {
        "": line.what,
        "measured": _shown(line.measured, line.unit),
        "predicted": "" if line.predicted is None else _shown(line.predicted, line.unit),
        "measured / predicted": "" if line.ratio is None else f"{line.ratio:.2f}",
        "note": line.note,
    }


def _plain(line: WholePathLine) -> dict[str, object]:
    return {
        "table": line.table,
        "what": line.what,
        "measured": line.measured,
        "predicted": line.predicted,
        "unit": line.unit,
        "note": line.note,
    }


def _shown(value: float, unit: str) -> str:
    if unit == "s":
        return fmt.seconds(value)
    return fmt.si(value, unit) if unit == "B" else f"{value:.3g} {unit}"
