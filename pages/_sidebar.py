"""The sidebar: draws the scenario's controls, bound to the URL, and keeps the scenario that they describe.

The frame draws it on every page, so that what the controls hold survives page switches and stays in the link. In a closed
row a control at its default is left out: it holds nothing that could be lost, and drawing boxes is most of what a rerun
costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isinf
from typing import Any

import streamlit as st

from calc.scenario import Scenario, Traffic
from calc.scenario_text import from_query
from pages import _controls as table
from pages._control_values import (
    CONFIG_KEY,
    DEFAULT,
    GPU_JSON_KEY,
    PASTED_PARAMETER,
    only_offered,
    read_controls,
    unknown_names,
    widget_value,
)
from pages._controls import Control, Kind
from pages._gated import draw_gated
from pages._own_hardware import GPU_KEY, draw_own_hardware, forget_carried
from pages._ui import folded

SCENARIO_KEY = "_scenario"
PROBLEMS_KEY = "_link_problems"
PAGE_KEY = "_page"
UPLOAD_KEY = "config_upload"
MAX_UPLOAD_MB = 5
NUMBER_OR_NONE = (r"^\s*([0-9.,eE+-]*|none)\s*$", "A number, or empty for none.")


def show_scenario(scenario: Scenario) -> None:
    """Set every control to a scenario. Only from a callback, before the controls are drawn."""
    for control in table.CONTROLS:
        st.session_state[control.parameter] = widget_value(control, scenario)
    st.session_state[CONFIG_KEY] = scenario.config_text
    st.session_state[GPU_JSON_KEY] = scenario.gpu_json


def current_scenario() -> Scenario:
    """The scenario of this run; the first visit's where no frame was drawn."""
    found = st.session_state.get(SCENARIO_KEY)
    return found if isinstance(found, Scenario) else DEFAULT


def _drop_endless_numbers() -> None:
    """Take numbers beyond every float out of the link: a box of whole numbers would end in a traceback over one.

    Streamlit makes a link's number whole before it looks at its bounds. Notices were made of the link before; a new run
    begins with the link as it is then.
    """
    endless = [name for name, text in st.query_params.to_dict().items() if _is_endless(text)]
    for name in endless:
        del st.query_params[name]
    if endless:
        st.rerun()


def _is_endless(text: str) -> bool:
    try:
        return isinf(float(text))
    except ValueError:
        return False


def draw_sidebar(page: str) -> None:
    """Draw all controls and keep the scenario that they describe; raises `InputError` on a value it cannot use.

    `page`: the address of the page around which they are drawn.
    """
    st.sidebar.subheader("Model")  # at once: the page makes room for the sidebar with its first words
    if PROBLEMS_KEY not in st.session_state:
        linked = st.query_params.to_dict()
        opened, problems = only_offered(from_query(linked))
        st.session_state[PROBLEMS_KEY] = (opened, problems + unknown_names(linked))
    else:
        _restore_what_an_interrupted_run_lost(page)
    _drop_endless_numbers()
    held = st.query_params.to_dict() | st.session_state.to_dict()  # before the first draw only the link knows
    with st.sidebar:
        _draw(table.MODEL[0])
        _draw_pair(*table.MODEL[1:])
        with folded("More: paste a config.json, revision", key="more-model") as is_open:
            _draw_config(is_open=is_open)
            _draw_folded(table.MODEL_MORE, held, is_open=is_open)
            if is_open:
                draw_gated()
        st.subheader("Hardware")
        _draw(*table.HARDWARE)
        draw_own_hardware()
        with folded("More: layout, engine, price", key="more-hardware") as is_open:
            _draw_folded(table.HARDWARE_MORE, held, is_open=is_open)
        st.subheader("Workload")
        _draw(table.USERS if held.get("traffic") == Traffic.USERS else table.RATE)
        _draw_pair(*table.WORKLOAD[:2])
        _draw(*table.WORKLOAD[2:])
        with folded("More: users, TTFT, percentile, bursts", key="more-workload") as is_open:
            _draw_folded(table.WORKLOAD_MORE, held, is_open=is_open)
        st.divider()
        _draw(*table.FIDELITY)
        with folded("More: efficiency, profile", key="more-fidelity") as is_open:
            _draw_folded(table.FIDELITY_MORE, held, is_open=is_open)
    st.session_state[PAGE_KEY] = page
    st.session_state[SCENARIO_KEY] = read_controls(st.session_state.to_dict())


def _restore_what_an_interrupted_run_lost(page: str) -> None:
    """A page left before it was drawn: the values of its link are set again, or told to the browser again.

    A run that was interrupted loses values that came from the link; its scenario, or the link's, still has them. A
    browser that was left no time to draw a control asks for the next page without that control's value: only a value
    that is assigned is sent to it a second time.
    """
    opened, _ = st.session_state[PROBLEMS_KEY]
    kept = st.session_state.get(SCENARIO_KEY, opened)
    switched = st.session_state.get(PAGE_KEY, page) != page
    linked, held = st.query_params.to_dict(), st.session_state.to_dict()
    for control in table.CONTROLS:
        name, default = control.parameter, widget_value(control, DEFAULT)
        if name in linked:
            continue
        value = held.get(name, widget_value(control, kept))
        if value != default and (switched or name not in held):
            st.session_state[name] = value


def link_notices() -> list[str]:
    """What a link could not bring, as long as the scenario is still the one that it opened."""
    opened, problems = st.session_state.get(PROBLEMS_KEY, (DEFAULT, ()))
    notices = list(problems) if current_scenario() == opened else []
    if PASTED_PARAMETER in st.query_params and not st.session_state.get(CONFIG_KEY):
        notices.append(
            "This link was made with a pasted config.json, which a link cannot carry. "
            "Paste it again (sidebar, Model, More), or load the saved scenario."
        )
    return notices


def _draw(*controls: Control) -> None:
    for control in controls:
        _WIDGETS[control.kind](control, widget_value(control, DEFAULT))


def _draw_folded(controls: Sequence[Control], held: Mapping[str, Any], *, is_open: bool) -> None:
    """The controls of a row; of a closed one those that differ from their default, which only a drawn box keeps linked."""
    for control in controls:
        default = widget_value(control, DEFAULT)
        if is_open or held.get(control.parameter, default) != default:
            _draw(control)


def _draw_pair(left: Control, right: Control) -> None:
    for column, control in zip(st.columns(2, gap="small"), (left, right), strict=True):
        with column:
            _draw(control)


def _common(control: Control) -> dict[str, Any]:
    return {"key": control.parameter, "bind": "query-params", "help": control.help or None}


def _choice(control: Control, default: str, *, others: bool = False) -> None:
    options = control.options()
    if default not in options:
        options = (default, *options)
    st.selectbox(
        control.label,
        options,
        index=options.index(default),
        accept_new_options=others,
        on_change=forget_carried if control.parameter == GPU_KEY else None,
        **_common(control),
    )


def _number(control: Control, default: float) -> None:
    whole = control.kind is Kind.WHOLE
    convert = int if whole else float
    st.number_input(
        control.label,
        min_value=convert(control.low or 0),
        max_value=convert(control.high or 1e9),
        value=convert(default),
        step=convert(control.step or 1),
        format="%d" if whole else "%g",
        **_common(control),
    )


def _text(control: Control, default: str) -> None:
    st.text_input(
        control.label,
        default,
        placeholder=control.placeholder,
        max_chars=120,
        validate=NUMBER_OR_NONE if control.kind is Kind.OPTIONAL else None,
        **_common(control),
    )


_WIDGETS: dict[Kind, Callable[[Control, Any], None]] = {
    Kind.CHOICE: _choice,
    Kind.OPEN_CHOICE: lambda control, default: _choice(control, default, others=True),
    Kind.NUMBER: _number,
    Kind.WHOLE: _number,
    Kind.OPTIONAL: _text,
    Kind.TEXT: _text,
    Kind.SWITCH: lambda control, default: st.toggle(control.label, default, **_common(control)),
}


def _draw_config(*, is_open: bool) -> None:
    """The box for a pasted config.json, as long as it is open or holds one, and the way to fill it from a file."""
    if is_open or st.session_state.get(CONFIG_KEY):
        st.text_area(
            "config.json, pasted",
            key=CONFIG_KEY,
            height=120,
            placeholder='{"model_type": "llama", "hidden_size": 4096, ...}',
            help="Replaces the model above. It is read as data and never executed. It travels in a saved scenario, "
            "never in a link.",
        )
    if not is_open and UPLOAD_KEY not in st.session_state:
        return
    st.file_uploader(
        "or uploaded",
        type=["json"],
        key=UPLOAD_KEY,
        max_upload_size=MAX_UPLOAD_MB,
        on_change=_take_upload,
    )


def _take_upload() -> None:
    uploaded = st.session_state.get(UPLOAD_KEY)
    if uploaded is not None:
        st.session_state[CONFIG_KEY] = uploaded.getvalue().decode("utf-8", errors="replace")
