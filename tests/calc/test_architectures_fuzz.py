"""Damaged configs give a spec whose parts sum to its total, or an error that names a field; never anything else."""

import json
import random

import pytest

from bench._mutations import mutated
from calc.architectures import parse, parse_reader, read_config
from calc.architectures.unread import unread_fields
from calc.errors import InputError, UnsupportedArchitecture
from calc.memory import kv
from calc.parameters import APART, count_parameters
from calc.quantization import stored_bytes
from presets import models

SAMPLED = 1500

# Fields of real configs that no adapter reads and that are neither listed as inert nor sound structural: settings of
# generation, of rotary scaling, and of Hunyuan's absent vision part.
UNREAD = {
    "_num_labels",
    "beta_fast",
    "beta_slow",
    "diversity_penalty",
    "early_stopping",
    "factor",
    "hc_sinkhorn_iters",
    "interpolate_factor",
    "is_encoder_decoder",
    "length_penalty",
    "min_length",
    "repetition_penalty",
    "rope_type",
    "temperature",
    "top_k",
    "top_p",
    "type",
    "typical_p",
    "video_placeholder",
    "vit_mapping_type",
    "vit_patch",
}


def real_configs(reference=None):
    if reference is None:
        return [config for name in models.preset_ids() if (config := models.config_of(name))]
    return [json.loads(file.read_text()) for file in sorted((reference / "configs").glob("*.json"))]


def sums_up(spec):
    count = count_parameters(spec)
    apart = sum(count.parts.get(str(role), 0) for role in APART)
    assert sum(count.parts.values()) - apart == count.total
    assert 0 < count.active <= count.total
    assert stored_bytes(spec).stored > 0
    assert kv.sequence_bytes(spec, 1000) >= kv.sequence_bytes(spec, 1) >= 0


def test_damaged_configs_are_read_or_refused():
    found = real_configs()
    rng = random.Random(4)
    read = unnamed = 0
    for _ in range(SAMPLED):
        broken = mutated(rng.choice(found), found, rng)
        try:
            spec = parse(broken, model_id="fuzz")
        except InputError as refusal:
            unnamed += not (refusal.field and str(refusal))
            continue
        read += 1
        sums_up(spec)
    assert unnamed == 0
    assert SAMPLED // 10 < read < SAMPLED * 9 // 10


@pytest.mark.reference
def test_no_field_of_a_reference_config_is_skipped_silently(reference):
    unread = {}
    for config in real_configs(reference):
        reader = read_config(config, model_id="x")
        try:
            parse_reader(reader)
        except InputError:
            continue
        for path, value in unread_fields(reader):
            unread.setdefault(path.rsplit(".", 1)[-1], value)
    assert set(unread) == UNREAD


LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 3,
    "vocab_size": 1000,
}


@pytest.mark.parametrize(
    "fields",
    [
        {"num_experts": 8},
        {"sliding_window_pattern": 4},
        {"kv_lora_rank": 512},
        {"mamba_d_state": 16},
        {"moe_layer_freq": 2},
        {"num_kv_shared_layers": 2},
        {"layer_types": ["full_attention", "linear_attention", "full_attention"]},
    ],
)
def test_a_structural_field_that_a_family_does_not_know_is_refused(fields):
    with pytest.raises(UnsupportedArchitecture, match=next(iter(fields))):
        parse(LLAMA | fields, model_id="x")


@pytest.mark.parametrize("off", [None, False, 0, [], {}, "none"])
def test_a_field_that_is_off_is_no_reason_to_refuse(off):
    assert parse(LLAMA | {"num_experts": off, "kv_lora_rank": off}, model_id="x") == parse(
        LLAMA, model_id="x"
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"num_hidden_layers": 1e9}, "num_hidden_layers"),
        ({"num_attention_heads": -8}, "num_attention_heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"head_dim": 1.5}, "head_dim"),
        ({"max_position_embeddings": -4}, "max_position_embeddings"),
        ({"model_type": "resnet"}, "model_type"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"architectures": ["LlamaForObjectDetection"]}, "architectures"),
        ({"tie_word_embeddings": "maybe"}, "tie_word_embeddings"),
    ],
)
def test_a_bad_value_is_named(fields, field):
    with pytest.raises(InputError) as refusal:
        parse(LLAMA | fields, model_id="x")
    assert refusal.value.field == field


def test_numbers_as_text_and_legacy_names_are_understood():
    plain = parse(LLAMA, model_id="x")
    assert parse(LLAMA | {"hidden_size": "64", "num_hidden_layers": 3.0}, model_id="x") == plain
    old = {
        k: v for k, v in LLAMA.items() if k not in ("hidden_size", "num_hidden_layers", "num_attention_heads")
    }
    assert parse(old | {"n_embd": 64, "n_layer": 3, "n_head": 8}, model_id="x") == plain


def test_two_names_of_one_size_must_agree():
    assert parse(LLAMA | {"n_head": 8}, model_id="x") == parse(LLAMA, model_id="x")
    with pytest.raises(InputError, match="num_attention_heads says 8"):
        parse(LLAMA | {"n_head": 4}, model_id="x")


def test_a_list_of_ten_thousand_layers_is_refused():
    with pytest.raises(InputError):
        parse(LLAMA | {"num_hidden_layers": 10_000, "layer_types": ["full_attention"] * 10_000}, model_id="x")


def test_an_unknown_type_names_those_spelled_alike():
    with pytest.raises(UnsupportedArchitecture) as refusal:
        parse(LLAMA | {"model_type": "qwen3_mo"}, model_id="x")
    assert "qwen3_moe" in refusal.value.next_step
