"""Cached ways from the scenario to results: pages ask here, and never compute or fetch themselves.

Results are immutable and shared between sessions; errors are not kept, so a source that failed is asked again.
"""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from calc.answer import answer
from calc.levers import LeverEffect, lever_effects
from calc.plan.ranking import Ranking, on_its_own_accelerator, rank
from calc.plan.space import Limits, Spare
from calc.result import Answer, Inputs
from calc.scenario import Scenario
from calc.worked.answer import worked_metrics
from calc.worked.formula import Worked
from pages._sidebar import current_scenario
from presets.resolve import files_written, resolve, subject

TTL = "1h"
SHORTLIST = 8  # accelerators that are answered at a slower fidelity than the textbook's


def _by_value(scenario: Scenario) -> str:
    """A scenario's text, and when files of this machine that it names were written: what was replaced is read anew."""
    return repr(scenario) + files_written(scenario)


BY_VALUE = {Scenario: _by_value}
"""How the caches tell scenarios apart: their text, many times quicker than a hash of every field."""


def inputs_for(scenario: Scenario) -> Inputs:
    """What the scenario names, read once for all questions about it."""
    return replace(_read(subject(scenario)), scenario=scenario)


@st.cache_resource(max_entries=64, ttl=TTL, show_spinner="Reading the model", hash_funcs=BY_VALUE)
def _read(scenario: Scenario) -> Inputs:
    return resolve(scenario)


@st.cache_resource(max_entries=64, ttl=TTL, show_spinner=False, hash_funcs=BY_VALUE)
def answer_for(scenario: Scenario) -> Answer:
    """The six-step answer."""
    return answer(inputs_for(scenario))


@st.cache_resource(max_entries=64, ttl=TTL, show_spinner=False, hash_funcs=BY_VALUE)
def worked_for(scenario: Scenario) -> dict[str, Worked]:
    """The formula behind each headline number of the answer."""
    return worked_metrics(answer_for(scenario))


@st.cache_resource(max_entries=32, ttl=TTL, show_spinner=False, hash_funcs=BY_VALUE)
def levers_for(scenario: Scenario) -> tuple[LeverEffect, ...]:
    """What each lever would do to the answer."""
    return lever_effects(answer_for(scenario))


@st.cache_resource(max_entries=16, ttl=TTL, show_spinner=False, hash_funcs=BY_VALUE)
def ranking_for(scenario: Scenario, spare: Spare, *, whole_nodes: bool) -> Ranking:
    """The answer on every accelerator of the catalogue, ranked, with what may fail at peak and how GPUs are sold."""
    inputs = inputs_for(scenario)
    limits = Limits(spare=spare, whole_nodes=whole_nodes)
    return rank(inputs, inputs.catalogue, shortlist=SHORTLIST, limits=limits)


@st.cache_resource(max_entries=32, ttl=TTL, show_spinner=False, hash_funcs=BY_VALUE)
def other_layout_for(scenario: Scenario) -> Answer | None:
    """The best plan of any layout on the scenario's accelerator, where it is better than the answer."""
    return on_its_own_accelerator(answer_for(scenario))


def current_inputs() -> Inputs:
    """Inputs of the scenario in the sidebar."""
    return inputs_for(current_scenario())


def current_answer() -> Answer:
    """The answer of the scenario in the sidebar."""
    return answer_for(current_scenario())
