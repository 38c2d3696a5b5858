"""The parts of the page that show a stored run: use, details, state, history, comparison, import and export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from calc import format as fmt
from calc.errors import RidgebeamError
from calc.provenance import Provenance
from calc.worked.formula import Worked
from calc.worked.measured import worked_rate, worked_share
from pages._probe_figures import (
    attention_rows,
    bars_of,
    curve_figure,
    curve_finding,
    sizes_figure,
    sizes_finding,
)
from pages._ui import Metric, plain_text, show_chart, show_data, show_error
from presets.deployment import may_probe
from probes import store
from probes.store import Run

UPLOAD_KEY = "probe_upload"
UPLOAD_ERROR_KEY = "_probe_upload_error"
MAX_UPLOAD_MB = 8


def run_metrics(run: Run) -> list[Metric]:
    """Five numbers of a run."""
    found = store.readings_of(run)
    form = found.sixteen_bit
    readings: list[tuple[str, float | None, str, str]] = [
        ("Memory bandwidth", found.bandwidth, "B/s", "Best of scale, triad and read beyond the last cache."),
        (f"Products, {form}", found.compute_16bit, "FLOP/s", "Sustained for seconds, not the first burst."),
        ("Reading weights", found.weights.get(form), "B/s", "Products of up to 8 tokens, as in decode."),
        ("Reading the cache", found.attention, "B/s", f"Torch's own kernels: {found.attention_way}."),
        ("Starting a kernel", found.kernel_s, "s", "In a graph where the device has graphs."),
    ]
    return [
        Metric(
            label=label,
            reading=fmt.seconds(value) if unit == "s" else fmt.si(value, unit),
            help=text,
            provenance=Provenance.MEASURED,
        )
        for label, value, unit, text in readings
        if value is not None
    ]


def worked_run_rates(run: Run) -> list[Worked]:
    """The best case of each timed kind as bytes or FLOP over seconds, then each bar as a share of its peak."""
    lines = []
    for probe, what in (
        ("bandwidth", "memory bandwidth"),
        ("skinny_gemm", "reading weights"),
        ("gemm", "products"),
    ):
        case = max(
            (one for one in store.cases_of(run, probe) if one.get("timing") and not _is_apart(one)),
            key=lambda one: float(one["value"]),
            default=None,
        )
        if case is None:
            continue
        shape, seconds = case["parameters"], float(case["timing"]["median_s"])
        amount = case.get("bytes_per_call")
        if probe == "gemm":
            amount = 2.0 * shape["tokens"] * shape["n"] * shape["k"]
        if amount:
            lines.append(worked_rate(f"{what}: {case['case']}", float(amount), seconds))
    for bar in bars_of(run):
        lines += worked_share(f"{bar.label}, over its peak", bar.value, bar.peak)
    lines += _worked_attention(run)
    for row in run["state"].get("layers") or ():
        lines += worked_share(
            f"one layer, {row['case']}: measured over the sum of its parts", row["measured_s"], row["parts_s"]
        )
    return lines


def _worked_attention(run: Run) -> list[Worked]:
    """Each line of the attention table: its rate, and its share of what products or memory reach."""
    found = store.readings_of(run)
    lines: list[Worked] = []
    for probe, amount_of, reached, whose in (
        ("prefill_attention", "flop_per_call", found.compute_16bit, "products"),
        ("decode_attention", "bytes_per_call", found.bandwidth, "memory"),
    ):
        for case in store.cases_of(run, probe):
            amount, timing = case.get(amount_of), case.get("timing")
            if not amount or not timing:
                continue
            about = f"attention: {case['case']}"
            lines.append(worked_rate(about, float(amount), float(timing["median_s"])))
            lines += worked_share(f"{about}, over what {whose} reach", float(case["value"]), reached or 0.0)
    return lines


def _is_apart(case: Mapping[str, Any]) -> bool:
    """Copies and sweeps over sizes: shown, and not what the bandwidth is read from."""
    return case["parameters"].get("kernel") == "copy" or bool(case["parameters"].get("sweep"))


def draw_details(run: Run) -> None:
    """Curves, attention, the layer, the device's state, and what gave no number."""
    curve, sizes = curve_figure(run), sizes_figure(run)
    if curve is not None:
        st.header("Matrix products against tokens", anchor=False)
        show_chart(curve, alt=curve_finding(run), key="probe-curve")
    if sizes is not None:
        st.header("Bandwidth against size", anchor=False)
        show_chart(sizes, alt=sizes_finding(run), key="probe-sizes")
    rows = attention_rows(run)
    if rows:
        st.header("Attention, by torch's own kernels", anchor=False)
        st.caption(
            "Shown beside the model's numbers; an engine's own kernels differ, and its profile is not changed."
        )
        st.dataframe(rows, hide_index=True, key="probe-attention")
    _draw_layers(run)
    st.header("State of the device", anchor=False)
    remarks = [*run["state"].get("remarks", []), *store.unsteady(run)]
    reason = (
        run["state"].get("reason") or "Nothing remarkable was seen, or this kind of device does not tell."
    )
    st.markdown("\n".join(f"- {plain_text(str(remark))}" for remark in remarks) or plain_text(str(reason)))
    faults = store.faults(run)
    if faults:
        with st.expander(f"{fmt.plural(len(faults), 'case')} without a number", icon=":material/rule:"):
            st.dataframe(faults, hide_index=True, key="probe-problems")
    show_data(lambda: data_rows(run), key="probe-data", name=f"ridgebeam-{run['id']}")


def _draw_layers(run: Run) -> None:
    rows = run["state"].get("layers")
    if not rows:
        return
    model = (run.get("model") or {}).get("id", "the model")
    st.header(plain_text(f"One layer of {model} against the sum of its parts"), anchor=False)
    st.dataframe(
        [
            {
                "case": row["case"],
                "measured": fmt.seconds(row["measured_s"]),
                "sum of parts": fmt.seconds(row["parts_s"]),
                "measured over parts": fmt.factor(row["ratio"]) if row["ratio"] else "",
            }
            for row in rows
        ],
        hide_index=True,
        key="probe-layers",
    )
    st.caption(
        "From 0.7x to 1.4x the parts explain the layer. Outside of that the difference is shown, not corrected."
    )


def data_rows(run: Run) -> list[dict[str, Any]]:
    """Every case as one flat row."""
    return [
        {
            "probe": case["probe"],
            "case": case["case"],
            "value": case["value"],
            "unit": case["unit"],
            "p10_s": (case.get("timing") or {}).get("p10_s"),
            "median_s": (case.get("timing") or {}).get("median_s"),
            "p90_s": (case.get("timing") or {}).get("p90_s"),
            "samples": (case.get("timing") or {}).get("samples"),
            "mode": (case.get("timing") or {}).get("mode"),
            "tags": ", ".join(case.get("tags", [])),
        }
        for case in run["cases"]
    ]


def name_of(run: Run) -> str:
    """A run in a list: when, what, how thoroughly, how it ended."""
    words = f"{run['started'][:16].replace('T', ' ')}, {run['device'].get('name')}, {run['depth']}"
    words += "" if run["status"] == "complete" else f", {run['status']}"
    return words + (", imported" if run.get("imported") else "")


def draw_files(run: Run | None, runs: list[Run]) -> None:
    """History, comparison of two runs, export and import."""
    if run is not None:
        others = [other for other in runs if other["id"] != run["id"]]
        if others:
            with st.expander("Compare with another run", icon=":material/compare_arrows:"):
                _draw_comparison(run, others)
    with st.container(horizontal=True):
        if run is not None:
            st.download_button(
                "Export this run",
                store.export_text(run),
                f"{run['id']}.json",
                "application/json",
                key="probe-export",
                icon=":material/download:",
                on_click="ignore",
            )
            if may_probe():
                st.button(
                    "Forget this run",
                    on_click=_forget,
                    args=(run["id"],),
                    icon=":material/delete:",
                    key="probe-forget",
                )
    if may_probe():
        st.file_uploader(
            "Import a run that was measured elsewhere",
            type=["json"],
            key=UPLOAD_KEY,
            max_upload_size=MAX_UPLOAD_MB,
            on_change=_import,
        )
    error = st.session_state.pop(UPLOAD_ERROR_KEY, None)
    if isinstance(error, RidgebeamError):
        show_error(error)


def _draw_comparison(run: Run, others: list[Run]) -> None:
    index = {other["id"]: other for other in others}
    chosen = st.selectbox(
        "Against", list(index), format_func=lambda key: name_of(index[key]), key="probe_against"
    )
    rows = store.compare(index[str(chosen)], run)
    if not rows:
        st.info("The two runs have no case in common.")
        return
    st.dataframe(
        [
            {
                "probe": row["probe"],
                "case": row["case"],
                "then": fmt.seconds(row["first"])
                if row["unit"] == "s"
                else fmt.si(row["first"], row["unit"]),
                "now": fmt.seconds(row["second"])
                if row["unit"] == "s"
                else fmt.si(row["second"], row["unit"]),
                "now over then": fmt.factor(row["ratio"]),
            }
            for row in rows
        ],
        hide_index=True,
        key="probe-comparison",
    )


def _forget(run_id: str) -> None:
    """Delete a run; a file that cannot be deleted is said, and stays."""
    try:
        store.delete(run_id)
    except RidgebeamError as error:
        st.session_state[UPLOAD_ERROR_KEY] = error


def _import() -> None:
    uploaded = st.session_state.get(UPLOAD_KEY)
    if uploaded is None:
        return
    try:
        store.import_run(uploaded.getvalue().decode("utf-8", errors="replace"))
    except RidgebeamError as error:
        st.session_state[UPLOAD_ERROR_KEY] = error
