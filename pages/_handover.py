"""Hand-over: the launch command of the plan, those of other engines, and a Kubernetes manifest."""

from __future__ import annotations

import streamlit as st

from calc.answer import Answer
from calc.engine import ENGINE_NAMES
from calc.handover import Command, Handover, handover_of
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
    own, *others = handed.commands
    st.markdown(f"**{_name(own)} starts one replica so**")
    _draw_command(own)
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
        st.caption(
            "The same layout and length limit; memory and times were worked out for the plan's own engine."
        )
        for command in others:
            st.markdown(f"**{_name(command)}**")
            _draw_command(command)
            for missing in command.not_set:
                st.caption(plain_text(missing))


def _draw_command(command: Command) -> None:
    st.code(command.text, language="bash", wrap_lines=True)
    for name, text in command.files:
        st.caption(f"{name}:")
        st.code(text, language="yaml")
    for problem in command.problems:
        st.warning(plain_text(problem), icon=":material/warning:")


def _name(command: Command) -> str:
    return ENGINE_NAMES.get(command.engine, str(command.engine))
