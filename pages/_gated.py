"""A gated model in the app: its config.json is read once with the reader's own token, and then stands as pasted text.

The token lives in this session's memory for that one request and is emptied by it: it is part of no scenario, no link,
no cache key of a page, no file and no log. What follows from the config is the reader's, because the text is.
"""

from __future__ import annotations

import json

import streamlit as st

from calc.errors import RidgebeamError
from pages._control_values import CONFIG_KEY
from pages._ui import plain_text, show_error

TOKEN_KEY = "hub_token"  # noqa: S105 - the name of a field, not a token
OUTCOME_KEY = "_gated_outcome"  # what the last reading said: an error, or notes


def draw_gated() -> None:
    """A password field and one button."""
    st.caption(
        "A gated model: its config.json is read once with your own hub token. The token is kept nowhere and never "
        "enters the link or a saved scenario."
    )
    st.text_input("Hub token", type="password", key=TOKEN_KEY, max_chars=512, autocomplete="off")
    st.button("Read config.json", key="read-gated", icon=":material/lock_open:", on_click=_read)
    outcome = st.session_state.pop(OUTCOME_KEY, None)
    if isinstance(outcome, RidgebeamError):
        show_error(outcome)
    elif outcome:
        st.success(plain_text(outcome), icon=":material/check:")


def _read() -> None:
    """Fetch, put the text where a pasted one stands, and empty the field whatever happened."""
    from presets.hub import fetch_model
    from presets.model_ids import parse_reference

    state = st.session_state
    token, state[TOKEN_KEY] = str(state.get(TOKEN_KEY) or ""), ""
    try:
        reference = parse_reference(
            f"{state['model']}@{state['rev']}" if state.get("rev") else state["model"]
        )
        found = fetch_model(reference, token=token)
    except RidgebeamError as error:
        state[OUTCOME_KEY] = error
        return
    state[CONFIG_KEY] = json.dumps(found.config, indent=1)
    notes = [f"{found.repo_id} was read; its config.json stands above.", *found.warnings]
    if found.hf_quant_config is not None:
        notes.append("Its hf_quant_config.json is not part of it: choose the weights' format by hand.")
    state[OUTCOME_KEY] = " ".join(notes)
