"""Measuring a running server: TTFT against prompt length, TPOT, concurrency, measured over predicted."""

from __future__ import annotations

import streamlit as st

from calc.endpoint.report import EndpointReport, report_of
from calc.endpoint.run import EndpointRun
from calc.endpoint.tables import client_words, fit_words
from calc.errors import RidgebeamError
from calc.replica_model import replica_model
from calc.scenario import Fidelity, Scenario
from calc.step import StepModel
from calc.worked.measured import worked_report
from pages._endpoint_figures import level_figure, level_finding, prompt_figure, prompt_finding
from pages._endpoint_job import draw_form, stored_run
from pages._endpoint_opinion import draw_opinion
from pages._endpoint_parts import (
    draw_calibration,
    draw_downloads,
    draw_tables,
    draw_upload,
    show_report_metrics,
)
from pages._inputs import inputs_for
from pages._sidebar import current_scenario
from pages._ui import guarded, plain_text, show_chart, show_ignored, show_title, show_worked_maths


def main() -> None:
    """The finding of the last run; before one, what a run would tell."""
    found = stored_run()
    scenario = current_scenario()
    model = _model_behind(scenario)
    report = None if found is None else _report(found[0], model, scenario)
    show_title(
        "Nothing is measured yet: type a server's address, and see what its users feel beside what they should."
        if report is None
        else report.headline,
        "" if report is None else plain_text(_assumed(report, scenario, model)),
    )
    draw_form()
    if report is not None and found is not None:
        guarded(lambda: _draw_report(report, found[1], model))()
    draw_upload()
    guarded(lambda: draw_calibration(model, report))()
    show_ignored(
        "Whether the answers are any good: random words go in, and what comes out is only counted.",
        "The network: off this machine, its delay is part of every TTFT.",
        "The rank and share of other users of the server while the test ran.",
    )


def _model_behind(scenario: Scenario) -> StepModel | None:
    """The step model of the sidebar's model and accelerator; None where they make none (totals only, no source)."""
    try:
        return replica_model(inputs_for(scenario), scenario.layout, fidelity=Fidelity.EXPECTED)
    except RidgebeamError as error:
        st.caption(plain_text(f"No prediction: {error.message}"))
        return None


def _report(run: EndpointRun, model: StepModel | None, scenario: Scenario) -> EndpointReport:
    return report_of(run, model=model, slo=scenario.slo)


def _assumed(report: EndpointReport, scenario: Scenario, model: StepModel | None) -> str:
    measured = f"{report.run.model} at {report.run.target}, {len(report.run.samples)} requests."
    if model is None:
        return measured
    behind = (
        f"{scenario.model} on {model.layout.gpus_per_replica} x {model.accelerator.name}, as the sidebar says"
    )
    return f"{measured} Predicted for {behind}: choose there what runs behind the server."


def _draw_report(report: EndpointReport, record: dict[str, object], model: StepModel | None) -> None:
    show_report_metrics(report)
    if report.gap is not None:
        st.markdown(plain_text(report.gap.sentence))
    if report.prompts:
        show_chart(prompt_figure(report), alt=prompt_finding(report), key="endpoint-ttft")
        st.caption(plain_text(fit_words(report)))
    if any(row.level.ttft_s is not None and row.level.concurrency for row in report.levels):
        show_chart(level_figure(report), alt=level_finding(report), key="endpoint-levels-chart")
    for note in report.notes:
        st.info(plain_text(note), icon=":material/info:")
    draw_tables(report)
    show_worked_maths(lambda: worked_report(report, model), key="endpoint-maths")
    cached = report.cached_tokens
    if "cached" in cached:
        st.caption(
            f"The same prompts sent twice: {cached['cached']:,.0f} tokens of the second came from the server's cache, "
            f"{cached.get('uncached', 0.0):,.0f} of the first."
        )
    st.caption(plain_text(client_words(report)))
    draw_downloads(report, record)
    draw_opinion(report)


main()
