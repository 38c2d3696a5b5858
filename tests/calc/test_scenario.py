"""Scenarios survive files and links, and refuse what they cannot use by name."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.engine import Engine
from calc.errors import InputError
from calc.scenario import Fidelity, Scenario
from calc.scenario_text import URL_PARAMETERS, apply_settings, from_json, from_query, to_json, to_query

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


def test_a_link_whose_values_clash_loses_no_more_than_one_of_them():
    scenario, problems = from_query({"model": "a/b", "tp": "8", "adp": "3", "rate": "7"})
    assert scenario == replace(Scenario(), model="a/b", tp=8, rate_per_s=7.0)
    assert len(problems) == 1
    assert "attention_dp" in problems[0]


def test_a_link_to_no_users_is_said_however_the_traffic_is_stated():
    for stated in ({"traffic": "users"}, {}):
        scenario, problems = from_query({"model": "a/b", "users": "0", **stated})
        assert scenario == replace(Scenario(), model="a/b", **stated)
        assert len(problems) == 1
        assert "users" in problems[0]


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


# A link and a file as the first version wrote them: what came later takes its default.
FIRST_LINK = {
    "v": "1", "model": "Qwen/Qwen3-0.6B", "weights": "fp8", "gpu": "l4", "tp": "2", "traffic": "users", "users": "9",
    "in": "300", "in_shape": "lognormal", "in_cv": "0.5", "tpot_ms": "35", "pct": "99", "kv_gb": "10", "mem_gib": "20",
    "paged": "false", "fidelity": "textbook", "price": "1.5",
}  # fmt: skip
FIRST_FILE = """{
  "schema_version": 1, "model": "Qwen/Qwen3-0.6B", "revision": "", "config_text": "", "quantization": "fp8",
  "kv_dtype": "auto", "gpu": "l4", "gpu_json": "", "tp": 2, "pp": 1, "dp": 1, "ep": 0, "attention_dp": 1, "nodes": 1,
  "engine": "vllm", "engine_version": "", "traffic": "users", "rate_per_s": 10.0, "users": 9, "arrival_cv": 1.0,
  "peak_factor": 1.0, "input_tokens": 300.0, "input_shape": "lognormal", "input_cv": 0.5, "output_tokens": 256.0,
  "output_shape": "fixed", "output_cv": 0.0, "prefix_share": 0.0, "ttft_s": null, "tpot_s": 0.035, "e2e_s": null,
  "percentile": 99.0, "headroom": 0.3, "max_seqs": null, "max_model_len": null, "paged": false,
  "memory_utilization": null, "kv_bytes_per_gpu": 10000000000.0, "device_memory_bytes": 21474836480.0, "mfu": 0.5,
  "fidelity": "textbook", "profile": "", "usd_per_gpu_hour": 1.5
}"""


def test_links_and_files_of_the_first_version_mean_the_same():
    from_link, problems = from_query(FIRST_LINK)
    assert problems == ()
    assert from_json(FIRST_FILE) == from_link
    assert (from_link.quantization, from_link.users, from_link.tpot_s, from_link.paged) == (
        "fp8",
        9,
        0.035,
        False,
    )
    assert (from_link.kv_bytes_per_gpu, from_link.device_memory_bytes) == (10e9, 20 * 2**30)
    assert (from_link.draft_tokens, from_link.adapters) == (0, 0)


@pytest.mark.parametrize("version", [[], {}, None, "1", 2, 10**30])
def test_another_version_of_a_file_is_refused_by_name(version):
    with pytest.raises(InputError, match="schema_version"):
        from_json(json.dumps(json.loads(FIRST_FILE) | {"schema_version": version}))
