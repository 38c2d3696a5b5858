import copy
import json
import random

import pytest

from calc.errors import InputError, RidgebeamError, UnsupportedArchitecture
from presets import models
from presets.config_text import MAX_CONFIG_BYTES, check_is_model_config, parse_config
from presets.sources import SourceKind, read, read_config_text

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
POEM = "Shall I compare thee to a summer's day?\nThou art more lovely and more temperate."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POEM, "it must be JSON"),
        ("", "it must be a JSON object"),
        ("  \n", "it must be a JSON object"),
        ("[1, 2]", "not a list"),
        ("42", "not a number"),
        ('"config"', "not a text"),
        ("null", "not null"),
        ("true", "not true or false"),
        ('{"a": 1', "it must be JSON"),
        ("{'a': 1}", "it must be JSON"),
        ("[" * 100_000, "nested deeper"),
        ('{"a": ' + "9" * 10_000 + "}", "it must be JSON"),
        (b"\xff\xfe\x00binary", "UTF-8"),
        (b"GGUF\x03\x00\x00\x00", "a GGUF file"),
        ('{"a": "' + "x" * MAX_CONFIG_BYTES + '"}', "at most 4 MiB"),
    ],
)
def test_what_is_no_config_says_what_it_is(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_config(text)
    assert caught.value.next_step
    assert len(str(caught.value)) < 400


def test_a_poem_is_shown_shortened_and_located():
    with pytest.raises(InputError) as caught:
        read_config_text(POEM)
    message = str(caught.value)
    assert "Shall I compare thee" in message
    assert "line 1, column 1" in message
    assert "\n" not in message


def test_infinity_and_a_byte_order_mark_are_read():
    assert parse_config(b'\xef\xbb\xbf{"time_step_limit": [0.0, Infinity]}')["time_step_limit"][1] == float(
        "inf"
    )


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.30"}, "UNet2DConditionModel"),
        ({"architecture": "vit_base_patch16_224", "num_classes": 1000}, "vit_base_patch16_224"),
        ({"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224}, "vit"),
        ({"model_type": "clip_vision_model", "hidden_size": 768}, "clip_vision_model"),
    ],
)
def test_an_image_model_is_refused_by_name(config, name):
    with pytest.raises(UnsupportedArchitecture, match=name):
        read_config_text(json.dumps(config))


@pytest.mark.parametrize(
    ("config", "file"),
    [
        ({"tokenizer_class": "LlamaTokenizer"}, "tokenizer_config.json"),
        ({"weight_map": {}}, "model.safetensors.index.json"),
        ({"_from_model_config": True}, "generation_config.json"),
        ({"peft_type": "LORA"}, "adapter_config.json"),
    ],
)
def test_a_neighbour_of_config_json_is_recognised(config, file):
    with pytest.raises(InputError, match=file):
        check_is_model_config(config)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_hidden_layers": 1e9}, "num_hidden_layers"),
        ({"num_attention_heads": -16}, "num_attention_heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"model_type": "no_such_family"}, "no_such_family"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_field(change, field):
    with pytest.raises(InputError, match=field):
        read_config_text(json.dumps(QWEN3 | change))


def test_a_config_of_one_absurd_field_is_refused_by_name():
    with pytest.raises(InputError, match="num_hidden_layers"):
        read_config_text('{"num_hidden_layers": 1e9}')


def test_pasted_text_is_read_where_an_id_is_expected():
    source = read("\n " + json.dumps(QWEN3))
    assert source.kind is SourceKind.CONFIG_TEXT
    assert source.id == "pasted config"
    assert source.spec.model_type == "qwen3"


ODD_VALUES = [
    None,
    True,
    -1,
    0,
    3,
    1e9,
    1e308,
    -0.5,
    "",
    "x",
    "32",
    [],
    {},
    [None],
    {"a": 1},
    2**70,
    [[]],
    "NaN",
]


@pytest.mark.parametrize("seed", range(4))
def test_no_damage_to_a_real_config_escapes_as_another_error(seed):
    chance = random.Random(seed)
    configs = [config for name in models.preset_ids() if (config := models.config_of(name)) is not None]
    survived = 0
    for _ in range(250):
        config = copy.deepcopy(chance.choice(configs))
        for field in chance.sample(sorted(config), chance.randint(1, 3)):
            config[field] = copy.deepcopy(chance.choice(ODD_VALUES))
        try:
            source = read_config_text(json.dumps(config))
        except RidgebeamError:
            continue
        survived += source.spec.vocab_size > 0
    assert 0 < survived < 250
