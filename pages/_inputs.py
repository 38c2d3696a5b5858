"""Cached ways from the scenario to results: pages ask here, and never compute or fetch themselves.

Results are immutable and shared between sessions; errors are not kept, so a source that failed is asked again.
"""

from __future__ import annotations

import streamlit as st

from calc.answer import Answer, Inputs, answer
from calc.levers import LeverEffect, lever_effects
from calc.plan.ranking import Ranking, rank
from calc.scenario import Scenario
from calc.worked import Worked
from calc.worked_answer import worked_metrics
from pages._sidebar import current_scenario
from presets.resolve import resolve

TTL = "1h"
SHORTLIST = 8  # accelerators that are answered at a slower fidelity than the textbook's


@st.cache_resource(max_entries=64, ttl=TTL, show_spinner="Reading the model")
def inputs_for(scenario: Scenario) -> Inputs:
    """What the scenario names, read once."""
    return resolve(scenario)


@st.cache_resource(max_entries=64, ttl=TTL, show_spinner=False)
def answer_for(scenario: Scenario) -> Answer:
    """The six-step answer."""
    return answer(inputs_for(scenario))


@st.cache_resource(max_entries=64, ttl=TTL, show_spinner=False)
def worked_for(scenario: Scenario) -> dict[str, Worked]:
    """The formula behind each headline number of the answer."""
    return worked_metrics(answer_for(scenario))


@st.cache_resource(max_entries=32, ttl=TTL, show_spinner=False)
def levers_for(scenario: Scenario) -> tuple[LeverEffect, ...]:
    """What each lever would do to the answer."""
    return lever_effects(answer_for(scenario))


@st.cache_resource(max_entries=16, ttl=TTL, show_spinner=False)
def ranking_for(scenario: Scenario) -> Ranking:
    """The answer on every accelerator of the catalogue, ranked."""
    inputs = inputs_for(scenario)
    return rank(inputs, inputs.catalogue, shortlist=SHORTLIST)


def current_inputs() -> Inputs:
    """Inputs of the scenario in the sidebar."""
    return inputs_for(current_scenario())


def current_answer() -> Answer:
    """The answer of the scenario in the sidebar."""
    return answer_for(current_scenario())
