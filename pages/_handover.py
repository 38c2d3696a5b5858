"""Hand-over: the launch command of the plan, those of other engines, and a Kubernetes manifest."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.engine import ENGINE_NAMES
from calc.handover import OTHER_ENGINES, Command, Handover, handover_of
from calc.result import Answer
from pages._ui import guarded, plain_text


def draw_handover(result: Answer) -> None:
    """The row under the answer; closed until somebody asks."""
    row = st.expander(
        "**10** Hand over: launch commands and a manifest", key="step-handover", on_change="rerun"
    )
    if row.open:
        with row:
            guarded(lambda: _draw(handover_of(result)))()


def _draw(handed: Handover) -> None:
    for command in handed.own:
        st.markdown(f"**{_title(command)}**")
        _draw_command(command)
    st.markdown("\n".join(f"- {plain_text(note)}" for note in handed.notes))
    if handed.manifest is None:
        st.info(f"No manifest: {plain_text(handed.manifest_why)}", icon=":material/info:")
    else:
        with st.container(horizontal=True):
            st.download_button(
                "Kubernetes manifest",
                handed.manifest,
                "ridgebeam-deployment.yaml",
                "application/yaml",
                key="manifest",
                icon=":material/download:",
                on_click="ignore",
            )
    with st.popover("Other engines", icon=":material/swap_horiz:"):
        st.caption(plain_text(OTHER_ENGINES))
        for command in handed.others:
            st.markdown(f"**{_name(command)}{f', {command.role}' if command.role else ''}**")
            _draw_command(command)
            for missing in command.not_set:
                st.caption(plain_text(missing))


def _draw_command(command: Command) -> None:
    st.code(command.text, language=None, wrap_lines=True)
    for name, text in command.files:
        st.caption(f"{name}:")
        st.code(text, language=None)
    for problem in command.problems:
        st.warning(plain_text(problem), icon=":material/warning:")


def _title(command: Command) -> str:
    """What a command of the plan's own engine starts."""
    if not command.role:
        return f"{_name(command)} starts one replica so"
    return f"{_name(command)} starts so, for {command.role} only: {fmt.plural(command.replicas, 'replica')}"


def _name(command: Command) -> str:
    return ENGINE_NAMES.get(command.engine, str(command.engine))
