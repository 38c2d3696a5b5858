"""Parts of the endpoint page: metrics, tables, calibration, files."""

from __future__ import annotations

import json

import streamlit as st

from calc import format as fmt
from calc.endpoint.calibration import CalibrationResult, Observation, calibrate, observations_of
from calc.endpoint.html import report_html
from calc.endpoint.report import EndpointReport
from calc.endpoint.run import run_from_text
from calc.endpoint.tables import level_rows, prompt_rows, report_json, rows_csv
from calc.errors import InputError, RidgebeamError
from calc.profile import Profile
from calc.provenance import Provenance
from calc.step import StepModel
from pages._endpoint_job import ERROR_KEY, keep_run
from pages._own_hardware import FIDELITY_KEY, PROFILE_KEY
from pages._sidebar import current_scenario
from pages._ui import Metric, plain_text, show_metrics
from presets.deployment import is_shared
from presets.load_test_files import read_load_test
from presets.profiles.calibrated import save_calibration

UPLOAD_KEY = "endpoint_upload"
POINTS_KEY = "_endpoint_points"
MAX_FILE_MB = 50


def show_report_metrics(report: EndpointReport) -> None:
    """Speed alone, the limit, and what the most users got."""
    metrics = []
    if report.tpot_s is not None:
        metrics.append(
            Metric(
                label="TPOT alone",
                reading=fmt.seconds(report.tpot_s.p50),
                help=f"Median of {report.tpot_s.n}; P90 {fmt.seconds(report.tpot_s.p90)}. "
                "(last - first token)/(n - 1), n by the server's count.",
                provenance=Provenance.MEASURED,
            )
        )
    if report.gap is not None:
        metrics += [
            Metric(
                label="Decode limit", reading=fmt.seconds(report.gap.limit_s), provenance=Provenance.DATASHEET
            ),
            Metric(
                label="Measured over predicted",
                reading=fmt.factor(report.gap.over_predicted),
                help=f"Predicted {fmt.seconds(report.gap.expected_s)}.",
            ),
        ]
    if report.fit is not None and report.fit.b_s:
        metrics.append(
            Metric(
                label="Prefill",
                reading=fmt.plain(1.0 / report.fit.b_s, "tokens/s"),
                help="One over the linear term of the TTFT fit.",
                provenance=Provenance.MEASURED,
            )
        )
    rates = [row.level.tokens_per_s for row in report.levels if row.level.tokens_per_s]
    if rates:
        metrics.append(
            Metric(
                label="Most throughput",
                reading=fmt.plain(max(rates), "tokens/s"),
                provenance=Provenance.MEASURED,
            )
        )
    show_metrics(metrics[:5])


def draw_tables(report: EndpointReport) -> None:
    """By concurrency and by prompt length, in readable units; columns without a value are left out."""
    for title, rows, key in (
        ("By concurrency", level_rows(report), "endpoint-levels"),
        ("By prompt length", prompt_rows(report), "endpoint-prompts"),
    ):
        if rows:
            st.header(title, anchor=False)
            st.dataframe([_readable(row, rows) for row in rows], hide_index=True, key=key)


def _readable(row: dict[str, object], rows: list[dict[str, object]]) -> dict[str, str]:
    shown = {}
    for name, value in row.items():
        if all(other[name] is None for other in rows):
            continue
        label = name.removesuffix("_s").replace("_", " ")
        if value is None:
            shown[label] = ""
        elif isinstance(value, bool):
            shown[label] = "yes" if value else "no"
        elif name == "attainment":
            shown[label] = fmt.percent(float(str(value)))
        elif name.endswith("_s") and not name.endswith("per_s"):
            shown[label] = fmt.seconds(float(str(value)))
        else:
            shown[label.replace(" per", "/s") if name.endswith("per_s") else label] = fmt.significant(
                float(str(value))
            )
    return shown


def draw_downloads(report: EndpointReport, record: dict[str, object]) -> None:
    """The run as JSON, its tables as CSV, and a page to share."""
    whole = report_json(report) | {"run": record}
    with st.container(horizontal=True):
        for label, content, name, kind in (
            ("Report", report_html(report), "ridgebeam-endpoint.html", "text/html"),
            ("JSON", json.dumps(whole, indent=1), "ridgebeam-endpoint.json", "application/json"),
            ("Levels, CSV", rows_csv(level_rows(report)), "ridgebeam-endpoint-levels.csv", "text/csv"),
            ("Prompts, CSV", rows_csv(prompt_rows(report)), "ridgebeam-endpoint-prompts.csv", "text/csv"),
        ):
            st.download_button(label, content, name, kind, key=f"endpoint-{name}", on_click="ignore")


def draw_upload() -> None:
    """A saved run, or another tool's results to calibrate with."""
    st.file_uploader(
        "A saved run, or results of vLLM bench, SGLang bench_serving, GuideLLM, llama-bench, AIPerf or genai-perf",
        type=["json", "jsonl"],
        key=UPLOAD_KEY,
        max_upload_size=MAX_FILE_MB,
        on_change=_load,
    )


def _load() -> None:
    uploaded = st.session_state.get(UPLOAD_KEY)
    if uploaded is None:
        return
    text = uploaded.getvalue().decode("utf-8", errors="replace")
    try:
        found = read_load_test(text)
        if found.tool == "Ridgebeam":
            run, record = run_from_text(text), json.loads(text)
            keep_run(run, record.get("run", record))
            st.session_state.pop(POINTS_KEY, None)
        else:
            st.session_state[POINTS_KEY] = (found.tool, found.observations)
    except RidgebeamError as error:
        st.session_state[ERROR_KEY] = error


def draw_calibration(model: StepModel | None, report: EndpointReport | None) -> None:
    """Fit, show before and after, and use it."""
    imported = st.session_state.get(POINTS_KEY)
    if imported is None and report is None:
        return
    st.header("Calibrate", anchor=False)
    if model is None:
        st.caption("Name the model and the accelerator behind the server in the sidebar to calibrate.")
        return
    source, points = imported or (
        report.run.target if report else "",
        observations_of(report.run) if report else (),
    )
    try:
        result = _fit(model, tuple(points), source)
    except InputError as error:
        st.caption(plain_text(str(error)))
        return
    st.markdown(plain_text(f"From {source}: {result.lines()[0]}"))
    st.dataframe(result.rows(), hide_index=True, key="endpoint-calibration")
    scenario = current_scenario()
    st.caption(
        plain_text(
            f"For {scenario.model} on {model.accelerator.name} under {scenario.engine}. Points that are not marked as "
            "fitted were held out: their error is the honest one."
        )
    )
    if is_shared():
        st.caption("This app serves others and stores nothing: download the profile for `--profile`.")
    else:
        st.button(
            "Use as profile",
            icon=":material/check:",
            key="endpoint_use",
            on_click=_use,
            args=(result.profile, model.accelerator.id, model.spec.id),
            help="Sets the profile and fidelity 'expected' in the sidebar.",
        )
    st.download_button(
        "Profile, JSON",
        json.dumps(result.profile.as_json(), indent=1),
        "ridgebeam-profile.json",
        "application/json",
        key="endpoint-profile",
        on_click="ignore",
    )


def _fit(model: StepModel, points: tuple[Observation, ...], source: str) -> CalibrationResult:
    return calibrate(model, points, source=source)


def _use(profile: Profile, gpu_id: str, model_id: str) -> None:
    try:
        st.session_state[PROFILE_KEY] = save_calibration(profile, accelerator_id=gpu_id, model_id=model_id)
    except InputError as error:
        st.session_state[ERROR_KEY] = error
        return
    st.session_state[FIDELITY_KEY] = "expected"
