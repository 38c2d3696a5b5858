"""Every number of every page names where it comes from, and a formula that it names stands filled in on its page."""

import json
import sys
from functools import partial

import pytest
import streamlit as st
from published_run import a100
from reading import is_filled_in, names_shown

from calc.formulas import FORMULAS
from pages import _ui
from pages._origins import ORIGINS
from pages._registry import PAGES
from probes import store

pytestmark = pytest.mark.app
ELSEWHERE = {
    "size.py": {"Replicas", "TTFT p50", "TTFT p99", "TPOT p99", "Breaks above"},  # once the plan is proven
}  # names that a click brings; the tests of that click have them
WITHOUT_A_RUN = {"simulate.py", "this_gpu.py", "endpoint.py"}


@pytest.fixture
def everything_open(open_page, monkeypatch):
    """A page with all of its rows open, but for the tables to take away, which repeat the numbers in base units."""

    def opened(file, **query):
        monkeypatch.setattr(st, "expander", partial(st.expander, expanded=True))
        parts = [module for name, module in sys.modules.items() if name.startswith("pages.")]
        for module in (_ui, *parts):
            if hasattr(module, "show_data"):
                monkeypatch.setattr(module, "show_data", lambda *_args, **_words: None)
        return open_page(file, **query)

    return opened


def test_every_page_is_listed_and_every_formula_is_one():
    assert list(ORIGINS) == [entry.file for entry in PAGES]
    named = {
        one
        for page in ORIGINS.values()
        for source in page.values()
        if isinstance(source, tuple)
        for one in source
    }
    assert named <= set(FORMULAS)


@pytest.mark.parametrize(
    "file", [entry.file for entry in PAGES if entry.file not in WITHOUT_A_RUN | {"methods.py"}]
)
def test_what_a_page_shows_is_listed_and_its_formulas_are_filled_in(everything_open, file):
    app = everything_open(file)
    listed = ORIGINS[file]
    names = names_shown(app, listed)
    assert names == set(listed) - ELSEWHERE.get(file, set())
    for source in listed.values():
        for one in source if isinstance(source, tuple) else ():
            assert is_filled_in(app, FORMULAS[one].result.latex), one


def test_what_a_run_brings_is_listed(everything_open, monkeypatch, tmp_path):
    """A stored run of this machine's devices, and traffic that was played."""
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    store.import_run(json.dumps(a100()))
    measured = everything_open("this_gpu.py")
    assert names_shown(measured, {}) <= set(ORIGINS["this_gpu.py"])
    assert measured.metric
    played = everything_open("simulate.py", sim_n="200")
    played.button(key="sim-run").click().run()
    assert names_shown(played, {}) == set(ORIGINS["simulate.py"])
    assert r"R_{good} = " in next(one for one in played.metric if one.label == "Goodput").proto.help
