"""Verb `formula`: one formula of the registry with numbers from the command line."""

import pytest

FORMULA_CASES = [
    (
        "ridge-a100",
        "ridge_flop_per_byte",
        {"peak_flop_per_s": "flops", "bandwidth_bytes_per_s": "bandwidth"},
        None,
    ),
    ("mm1-40-50", "mm1_mean_time_s", {"utilisation": 0.8, "service_s": 0.02}, ("mean_ms", 1e3)),
    (
        "md1-half-wait",
        "md1_mean_wait_s",
        {"utilisation": 0.8, "service_s": "service_s"},
        ("md1_wait_ms", 1e3),
    ),
    ("spec-tokens", "tokens_per_pass", {"acceptance": "acceptance", "drafts": "drafts"}, None),
    (
        "spec-speedup",
        "speedup",
        {"acceptance": "acceptance", "drafts": "drafts", "draft_cost": "draft_cost"},
        None,
    ),
    (
        "int4-group-scales",
        "bits_per_weight",
        {"bits": "bits", "scale_bits": "scale_bits", "group": "group"},
        None,
    ),
    ("goodput", "goodput_per_s", {"finished_per_s": "finished_per_s", "missed_per_s": "missed_per_s"}, None),
    (
        "little-chat",
        "requests_in_system",
        {"arrivals_per_s": "arrivals_per_s", "time_in_system_s": "time_in_system_s"},
        None,
    ),
    (
        "prefix-cache-example-8b",
        "prefill_s",
        {
            "params": "params",
            "prompt_tokens": "prompt_tokens",
            "cached_tokens": "cached_tokens",
            "mfu": "mfu",
            "peak_flop_per_s": "flops",
        },
        None,
    ),
]


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "formula", "inputs", "part"), FORMULA_CASES, ids=[c[0] for c in FORMULA_CASES]
)
def test_formulas_take_numbers_on_the_command_line(run, worked, name, formula, inputs, part):
    entry = worked[name]
    words = [f"{k}={entry['in'][v] if isinstance(v, str) else v}" for k, v in inputs.items()]
    code, record = run("formula", formula, *words)
    want = entry["want"] if part is None else entry["want"][part[0]] / part[1]
    assert code == 0
    assert record["value"] == pytest.approx(want, rel=1e-3)
    assert record["source"]


def test_formula_lists_explains_and_refuses(run):
    assert len(run("formula")[1]["formulas"]) > 30
    assert run("formula", "prefill_s")[1]["value"] > 0
    assert run("formula", "prefill_s", "params=many")[0] == 2
    assert run("formula", "prefill_s", "params=1")[0] == 2
    assert run("formula", "shakespeare")[0] == 2


def test_a_queue_without_end_is_null_in_json(run):
    """JSON has no Infinity: strict readers refuse the whole answer for it."""
    code, record = run("formula", "mm1_mean_time_s", "utilisation=1", "service_s=0.1")
    assert code == 0
    assert record["value"] is None
    assert record["inputs"]["utilisation"] == 1.0
