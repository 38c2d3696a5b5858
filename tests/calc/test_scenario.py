"""Scenarios survive files and links, and refuse what they cannot use by name."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import InputError
from calc.scenario import (
    URL_PARAMETERS,
    Engine,
    Fidelity,
    Scenario,
    apply_settings,
    from_json,
    from_query,
    to_json,
    to_query,
)

scenarios = st.builds(
    Scenario,
    model=st.sampled_from(["a/b", "Qwen/Qwen3-0.6B"]),
    tp=st.integers(0, 64),
    engine=st.sampled_from(list(map(str, Engine))),
    fidelity=st.sampled_from(list(map(str, Fidelity))),
    traffic=st.sampled_from(["rate", "users"]),
    rate_per_s=st.floats(0, 1e6).map(lambda x: round(x, 4)),
    users=st.integers(1, 10**6),
    input_tokens=st.integers(1, 10**6).map(float),
    tpot_s=st.none() | st.integers(1, 5000).map(lambda ms: ms * 1e-3),
    paged=st.booleans(),
    kv_bytes_per_gpu=st.none() | st.integers(1, 500).map(lambda gb: gb * 1e9),
)


@given(scenarios)
@settings(max_examples=100, deadline=None)
def test_a_scenario_survives_a_file_and_a_link(scenario):
    assert from_json(to_json(scenario)) == scenario
    back, problems = from_query(to_query(scenario))
    assert problems == ()
    assert to_query(back) == to_query(scenario)


def test_the_names_in_links_are_frozen():
    # People keep links. A name may be added; none may go or change its field.
    assert set(URL_PARAMETERS) == {
        "adapters", "adapter_rank",
        "model", "rev", "weights", "kv", "gpu", "tp", "pp", "dp", "ep", "adp", "nodes", "engine",
        "engine_version", "traffic", "rate", "users", "arrival_cv", "peak", "in", "in_shape", "in_cv", "out",
        "out_shape", "out_cv", "prefix", "ttft_s", "tpot_ms", "e2e_s", "pct", "headroom", "max_seqs", "max_len",
        "paged", "util", "kv_gb", "mem_gib", "mfu", "fidelity", "profile", "price",
            "budget", "chunked", "prefix_cache", "drafts", "acceptance", "pools",
        "reuse_s", "offload", "offload_gb",
    }  # fmt: skip


def test_every_field_but_the_pasted_texts_travels_in_a_link():
    assert {f.name for f in fields(Scenario)} - set(URL_PARAMETERS.values()) == {"config_text", "gpu_json"}


def test_bad_link_values_are_named_and_the_rest_is_used():
    scenario, problems = from_query(
        {"rate": "-3", "tp": "two", "in": "1e999", "out": "300", "engine": "<b>", "page": "x"}
    )
    assert scenario == replace(Scenario(), output_tokens=300.0)
    assert len(problems) == 4
    assert any("rate" in p for p in problems)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rate_per_s": float("nan")}, "rate_per_s"),
        ({"rate_per_s": -1.0}, "rate"),
        ({"tp": True}, "tp"),
        ({"tp": 1.5}, "tp"),
        ({"headroom": -0.1}, "headroom"),
        ({"tpot_s": 0.0}, "tpot_s"),
        ({"percentile": 100.0}, "percentile"),
        ({"engine": "triton"}, "engine"),
        ({"model": "x" * 400}, "model"),
        ({"prefix_share": 1.0}, "prefix_share"),
        ({"input_tokens": 0.0}, "tokens"),
        ({"users": 0, "traffic": "users"}, "concurrency"),
    ],
)
def test_bad_values_are_refused_by_name(change, named):
    with pytest.raises(InputError, match=named):
        replace(Scenario(), **change)


@pytest.mark.parametrize(
    "text", ["shall I compare thee", "[1]", "{}", '{"schema_version": 99}', "null", "[" * 100000]
)
def test_a_file_that_is_no_scenario_is_refused(text):
    with pytest.raises(InputError):
        from_json(text)


def test_an_unknown_field_in_a_file_is_named():
    record = json.loads(to_json(Scenario())) | {"colour": "red"}
    with pytest.raises(InputError, match="colour"):
        from_json(json.dumps(record))


def test_settings_given_as_text_are_applied():
    scenario = apply_settings(Scenario(), (("quantization", "int8"), ("tp", "4"), ("tpot_s", "none")))
    assert (scenario.quantization, scenario.tp, scenario.tpot_s) == ("int8", 4, None)
    with pytest.raises(InputError, match="colour"):
        apply_settings(Scenario(), (("colour", "red"),))
