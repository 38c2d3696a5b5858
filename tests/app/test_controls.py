"""Every scenario can be shown in the sidebar and read back from it, and every link is one the sidebar understands."""

import ast
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import InputError
from calc.scenario import Scenario
from calc.scenario_text import URL_PARAMETERS, from_query, to_query
from pages._actions import link_to
from pages._control_values import (
    CONFIG_KEY,
    GPU_JSON_KEY,
    field_value,
    only_offered,
    read_controls,
    unknown_names,
    widget_value,
)
from pages._controls import CONTROLS
from pages._registry import PAGES
from presets.scenarios import BATCH_LESSONS, READY


def shown(scenario):
    state = {control.parameter: widget_value(control, scenario) for control in CONTROLS}
    return state | {"config_text": scenario.config_text, "gpu_json": scenario.gpu_json}


def test_each_url_parameter_has_exactly_one_control():
    assert Counter(control.parameter for control in CONTROLS) == Counter(list(URL_PARAMETERS))
    held = {control.field for control in CONTROLS} | {CONFIG_KEY, GPU_JSON_KEY}
    assert held == {field.name for field in fields(Scenario)}


@pytest.mark.parametrize("ready", [*READY, *BATCH_LESSONS], ids=lambda ready: ready.id)
def test_ready_scenarios_survive_the_sidebar(ready):
    assert read_controls(shown(ready.scenario)) == ready.scenario


@settings(deadline=None, max_examples=60)
@given(
    rate=st.floats(0.001, 1e6),
    tokens=st.integers(1, 10**6),
    tpot=st.none() | st.floats(0.001, 10),
    percentile=st.none() | st.sampled_from([50.0, 90.0, 97.5, 99.0]),
    max_seqs=st.none() | st.integers(1, 10**5),
    kv=st.none() | st.floats(1.0, 1e12),
    paged=st.booleans(),
)
def test_any_scenario_survives_the_sidebar(rate, tokens, tpot, percentile, max_seqs, kv, paged):
    scenario = Scenario(
        rate_per_s=rate,
        input_tokens=float(tokens),
        tpot_s=tpot,
        percentile=percentile,
        max_seqs=max_seqs,
        kv_bytes_per_gpu=kv,
        paged=paged,
    )
    back = read_controls(shown(scenario))
    assert back.tpot_s == pytest.approx(tpot, rel=1e-9) if tpot else back.tpot_s is None
    assert back.kv_bytes_per_gpu == pytest.approx(kv, rel=1e-9) if kv else back.kv_bytes_per_gpu is None
    same = replace(back, tpot_s=tpot, kv_bytes_per_gpu=kv)
    assert same == scenario


def test_a_link_spells_values_as_the_boxes_do():
    scenario = Scenario(tpot_s=0.035, percentile=99.0, kv_bytes_per_gpu=50e9, tp=4, paged=False)
    by_parameter = {control.parameter: control for control in CONTROLS}
    for parameter, text in to_query(scenario).items():
        if parameter != "v":
            control = by_parameter[parameter]
            assert field_value(control, text) == getattr(scenario, control.field)


def test_a_link_keeps_the_pages_own_parameters_and_asks_for_a_pasted_config():
    link = link_to(Scenario(config_text="{}"), "http://127.0.0.1:8501/queueing?old=1", {"q_ms": "5"})
    assert link == "http://127.0.0.1:8501/queueing?q_ms=5&v=1&pasted=1"
    assert "pasted" not in link_to(Scenario(), "http://127.0.0.1:8501/")


def test_a_number_that_is_none_is_refused_by_field():
    state = shown(Scenario()) | {"util": "2"}
    with pytest.raises(InputError, match="memory_utilization"):
        read_controls(state)


def test_a_links_choice_that_no_box_offers_is_left_out_and_said():
    scenario, problems = only_offered(from_query({"kv": "fp3", "rate": "7"}))
    assert scenario == replace(Scenario(), rate_per_s=7.0)
    assert len(problems) == 1
    assert "link's kv was left out: got 'fp3'" in problems[0]
    assert "fp8" in problems[0]
    assert only_offered(from_query({"kv": "fp8"})) == (replace(Scenario(), kv_dtype="fp8"), ())


@pytest.mark.parametrize(("parameter", "typed"), [("offload_gb", "0"), ("reuse_s", "-1"), ("budget", "1.5")])
def test_a_box_that_cannot_be_used_is_named_with_a_way_out(parameter, typed):
    label = next(control.label for control in CONTROLS if control.parameter == parameter)
    with pytest.raises(InputError) as refused:
        read_controls(shown(Scenario()) | {parameter: typed})
    assert refused.value.next_step == f'Change "{label}" in the sidebar, or empty it.'


@pytest.mark.parametrize(("typed", "seconds"), [("1,000", 1.0), ("12,345.5", 12.3455), ("0.5", 0.0005)])
def test_a_comma_between_thousands_is_read(typed, seconds):
    assert read_controls(shown(Scenario()) | {"tpot_ms": typed}).tpot_s == pytest.approx(seconds)


@pytest.mark.parametrize("typed", ["0,05", "0,050", "12,5", "1,0000", ",5", "1,00,000", "0,5"])
def test_a_comma_that_may_be_a_decimal_one_is_refused_and_not_dropped(typed):
    """Half the world writes 0,5 for a half: taken as thousands it would be five."""
    with pytest.raises(InputError, match="a decimal point is a point"):
        read_controls(shown(Scenario()) | {"tpot_ms": typed})


@pytest.mark.parametrize(
    ("name", "meant"),
    [("input", "in"), ("input_tokens", "in"), ("output", "out"), ("Model", "model"), ("tpot", "tpot_ms"), ("gpus", "gpu")],
)  # fmt: skip
def test_a_name_in_a_link_that_means_nothing_is_said_with_what_it_may_have_meant(name, meant):
    (said,) = unknown_names({name: "3000", "rate": "7", "sim_seed": "2", "v": "1"})
    assert repr(name) in said
    assert said.endswith(f"did you mean {meant!r}?")
    assert meant in URL_PARAMETERS


def test_a_page_shows_that_a_name_in_its_link_means_nothing(open_page):
    assert any("'input' was left out" in box.value for box in open_page("methods.py", input="3000").info)
    assert not open_page("methods.py", topic="Memory", **{"in": "3000"}).info


def test_every_control_that_a_page_binds_to_its_link_has_a_name_of_that_page():
    own = tuple(name for page in PAGES for name in page.parameters)
    bound = set()
    for file in (Path(__file__).parents[2] / "pages").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                stated = {keyword.arg: keyword.value for keyword in node.keywords}
                if "bind" in stated:
                    bound.add(ast.literal_eval(stated["key"]))
    assert bound
    assert all(name.startswith(own) for name in bound)
    assert not [name for name in URL_PARAMETERS if name.startswith(own)]
