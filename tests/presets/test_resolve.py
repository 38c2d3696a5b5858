"""A scenario becomes inputs: what it names is read, what is typed wins, what is wrong is named."""

import json
from dataclasses import fields, replace

import pytest

from calc.answer import answer
from calc.custom_accelerator import accelerator_as_json
from calc.errors import InputError, UnsupportedArchitecture
from calc.scenario import Scenario
from presets import accelerators
from presets.resolve import READS, catalogue, resolve, subject

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 128000,
    "num_hidden_layers": 32,
    "tie_word_embeddings": False,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


def test_a_first_visit_has_a_price_with_cloud_and_date():
    inputs = resolve(Scenario())
    assert inputs.offer.usd_per_gpu_hour > 0.3
    assert "on demand" in inputs.offer.price_note
    assert "20" in inputs.offer.price_note


def test_the_users_own_price_wins():
    inputs = resolve(replace(Scenario(), usd_per_gpu_hour=1.25))
    assert inputs.offer.usd_per_gpu_hour == 1.25
    assert inputs.offer.price_note == "your own price"


def test_a_pasted_config_wins_over_the_id():
    inputs = resolve(replace(Scenario(), model="mine", config_text=json.dumps(LLAMA)))
    assert inputs.spec.id == "mine"
    assert inputs.spec.decoder.n_layers == 32
    assert answer(inputs).verdict.fits


def test_a_typed_accelerator_travels_in_the_scenario():
    typed = replace(accelerators.load("h100-textbook"), id="mine", name="Mine", bandwidth_bytes_per_s=1e12)
    text = json.dumps(accelerator_as_json(typed))
    inputs = resolve(replace(Scenario(), gpu_json=text))
    assert inputs.offer.accelerator.bandwidth_bytes_per_s == 1e12
    assert inputs.offer.usd_per_gpu_hour is None


def test_the_catalogue_has_every_real_part_and_no_made_up_one():
    assert len(catalogue()) == 140
    assert not {"a100-textbook", "example-gpu"} & {offer.accelerator.id for offer in catalogue()}


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"gpu": "h1000"}, InputError, "h1000"),
        ({"gpu_json": "a poem"}, InputError, "gpu_json"),
        ({"config_text": "Shall I compare thee"}, InputError, "JSON"),
        (
            {"config_text": json.dumps(LLAMA | {"num_attention_heads": -32})},
            InputError,
            "num_attention_heads",
        ),
        ({"config_text": json.dumps({"num_hidden_layers": 1e9})}, InputError, "num_hidden_layers"),
        (
            {"config_text": json.dumps({"model_type": "vit", "hidden_size": 768})},
            UnsupportedArchitecture,
            "vit",
        ),
    ],
)
def test_what_is_wrong_is_named(change, error, named):
    with pytest.raises(error, match=named):
        resolve(replace(Scenario(), **change))


OTHERWISE = {
    "quantization": "fp8", "kv_dtype": "fp8", "traffic": "users", "input_shape": "lognormal", "output_shape": "lognormal",
    "arrival_cv": 2.0, "prefix_share": 0.5, "percentile": 99.0, "acceptance": 0.5, "headroom": 0.5, "mfu": 0.4,
    "memory_utilization": 0.8, "kv_offload": "host",
}  # fmt: skip
"""Another value of a field; a switch is turned, and a number that is not named here grows by one."""


def _another(name, value):
    if name in OTHERWISE:
        return OTHERWISE[name]
    return not value if isinstance(value, bool) else (value or 0) + 1


def test_questions_change_no_input():
    """Or pages, which read once for all questions about a subject, would answer from another's inputs."""
    first = Scenario()
    asked = {field.name: getattr(first, field.name) for field in fields(Scenario) if field.name not in READS}
    other = replace(first, **{name: _another(name, value) for name, value in asked.items()})
    assert all(getattr(other, name) != value for name, value in asked.items())
    assert subject(other) == subject(first)
    assert replace(resolve(other), scenario=first) == resolve(first)
