"""The actions at the top right of every page, in one row on a phone too: examples, copy link, save and load, report."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from types import MappingProxyType
from urllib.parse import urlencode

import streamlit as st

from calc.errors import RidgebeamError
from calc.scenario import Scenario
from calc.scenario_text import URL_PARAMETERS, from_json, to_json, to_query
from pages._answer_metrics import answer_metrics
from pages._control_values import PASTED_PARAMETER
from pages._inputs import answer_for
from pages._report import report
from pages._sidebar import current_scenario, show_scenario
from pages._ui import plain_text, show_error
from presets.scenarios import READY, ReadyScenario

MAX_SCENARIO_MB = 3
LOAD_KEY = "scenario_upload"
LOAD_ERROR_KEY = "_load_error"
GO_TO_KEY = "_go_to"
EXAMPLES_KEY = "examples"


def draw_actions() -> None:
    """One row of small buttons; a scenario chosen here replaces the whole sidebar."""
    with st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
        _panel("Examples", _draw_examples, key=EXAMPLES_KEY, icon=":material/list_alt:")
        _panel("Copy link", _draw_link, key="copy-link", icon=":material/link:")
        _panel(
            "File",
            _draw_file,
            key="file",
            icon=":material/save:",
            explained="Save the scenario, or load one.",
        )
        _draw_report(current_scenario())
    error = st.session_state.pop(LOAD_ERROR_KEY, None)
    if isinstance(error, RidgebeamError):
        show_error(error)


def _panel(
    label: str, draw: Callable[[], None], *, key: str, icon: str, explained: str | None = None
) -> None:
    """A button under which a panel opens, drawn once it is open."""
    with st.popover(label, icon=icon, type="tertiary", help=explained, key=key, on_change="rerun") as panel:
        if panel.open:
            draw()


def _draw_examples() -> None:
    for ready in READY:
        st.button(
            f"**{ready.title}**  \n{plain_text(ready.question)}",
            key=f"ready-{ready.id}",
            on_click=_start_from,
            args=(ready,),
            type="tertiary",
        )


def _draw_report(scenario: Scenario) -> None:
    """The report of the current answer, made when it is asked for; nothing to report on where there is no answer."""
    try:
        result = answer_for(scenario)
    except RidgebeamError:
        return
    link = link_to(scenario, st.context.url or "")
    made_on = f"{dt.datetime.now(tz=dt.UTC):%d %B %Y}"
    st.download_button(
        "Report",
        lambda: report(result, answer_metrics(result), link=link, made_on=made_on),
        "ridgebeam-report.html",
        "text/html",
        key="report",
        icon=":material/summarize:",
        type="tertiary",
        on_click="ignore",
        help="The answer as one HTML page, with its assumptions, arithmetic and sources.",
    )


def link_to(scenario: Scenario, base_url: str, page_query: Mapping[str, str] = MappingProxyType({})) -> str:
    """The address that opens this scenario; a pasted config cannot travel in it, and the link says so.

    `page_query`: parameters of the page's own controls.
    """
    query = {**page_query, **to_query(scenario)}
    query.pop(PASTED_PARAMETER, None)
    if scenario.config_text:
        query[PASTED_PARAMETER] = "1"
    return f"{base_url.split('?', maxsplit=1)[0]}?{urlencode(query)}"


def _draw_link() -> None:
    scenario = current_scenario()
    st.caption("Opens this page with this scenario. The copy button is at the right of the box.")
    own = {name: value for name, value in st.query_params.items() if name not in URL_PARAMETERS}
    st.code(link_to(scenario, st.context.url or "", own), language=None, wrap_lines=True)
    if scenario.config_text or scenario.gpu_json:
        st.warning(
            "A pasted config.json or a typed accelerator does not fit into a link: whoever opens it is asked to paste "
            "it again. **Save scenario** keeps everything.",
            icon=":material/content_paste:",
        )


def _draw_file() -> None:
    st.download_button(
        "Save scenario",
        to_json(current_scenario()),
        "ridgebeam-scenario.json",
        "application/json",
        key="save-scenario",
        icon=":material/download:",
        on_click="ignore",
    )
    st.file_uploader(
        "Load a saved scenario", type=["json"], key=LOAD_KEY, max_upload_size=MAX_SCENARIO_MB, on_change=_load
    )


def _load() -> None:
    uploaded = st.session_state.get(LOAD_KEY)
    if uploaded is None:
        return
    try:
        show_scenario(from_json(uploaded.getvalue().decode("utf-8", errors="replace")))
    except RidgebeamError as error:
        st.session_state[LOAD_ERROR_KEY] = error


def _start_from(ready: ReadyScenario) -> None:
    show_scenario(ready.scenario)
    st.session_state[EXAMPLES_KEY] = False
    st.session_state[GO_TO_KEY] = ready.page
