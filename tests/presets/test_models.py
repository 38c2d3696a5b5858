import json
from dataclasses import replace

import pytest

from calc.architectures import parse
from calc.errors import InputError
from calc.memory.kv import kv_bytes_per_token
from calc.parameters import count_parameters
from calc.quantization import weight_bytes
from presets import models


def test_qwen3_06b_as_published():
    spec = models.load("Qwen/Qwen3-0.6B")
    assert kv_bytes_per_token(spec) == 114_688
    assert count_parameters(spec).total == 596_049_920


@pytest.mark.parametrize(("name", "parameters"), [("textbook-13b", 13 * 10**9), ("example-8b", 8 * 10**9)])
def test_the_textbook_models_state_their_total(name, parameters):
    count = count_parameters(models.load(name))
    assert count.total == count.active == parameters
    assert kv_bytes_per_token(models.load("textbook-13b")) == 819_200


def test_names_are_matched_without_case_and_organisation():
    assert models.load("qwen/qwen3-0.6b") is models.load("Qwen3-0.6B") is models.load(" Qwen/Qwen3-0.6B ")


def test_an_unknown_name_says_what_to_do():
    with pytest.raises(InputError, match="no bundled model"):
        models.load("nobody/nothing")


@pytest.mark.parametrize("preset_id", models.preset_ids())
def test_every_preset_parses(preset_id):
    assert models.load(preset_id).id == preset_id
    assert models.source_of(preset_id)


# Configs that no full copy in the reference data stands for: id, parameters that its publisher states.
STATED = (("openai/gpt-oss-20b", 20.91e9), ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", 14.77e9))
STATED_IDS = [name for name, _ in STATED]


@pytest.mark.reference
@pytest.mark.parametrize(
    "preset_id", [n for n in models.preset_ids() if models.config_of(n) and n not in STATED_IDS]
)
def test_a_preset_is_the_same_as_its_full_config(preset_id, reference):
    file = f"{preset_id.replace('/', '__')}.json"
    full = json.loads((reference / "configs" / file).read_text())
    beside = reference / "hf_quant_configs" / file
    rules = json.loads(beside.read_text()) if beside.is_file() else None
    assert models.load(preset_id) == parse(full, model_id=preset_id, hf_quant_config=rules)


@pytest.mark.parametrize(("preset_id", "parameters"), STATED)
def test_a_preset_without_a_full_config_has_the_parameters_that_are_published(preset_id, parameters):
    """gpt-oss: arXiv 2508.10925, table 1 (20.91B); R1-Distill-Qwen-14B: its model card's 14.8B, Qwen2.5-14B's 14.77B."""
    assert count_parameters(models.load(preset_id)).total == pytest.approx(parameters, rel=5e-4)


def test_gpt_oss_20b_stores_and_computes_what_is_published():
    """13,761,264,768 bytes: total_size in the published model.safetensors.index.json. Active, table 1: 3.61B, without the embedding."""
    spec = models.load("openai/gpt-oss-20b")
    assert weight_bytes(spec).stored == 13_761_264_768
    count = count_parameters(spec)
    assert count.active - count.embedding == pytest.approx(3.61e9, rel=2e-3)


def test_eighty_popular_models_are_bundled():
    assert len([name for name in models.preset_ids() if models.config_of(name)]) >= 80


def test_llama_2_chat_is_bundled_with_the_shape_of_its_base_model():
    # The chat model is a fine-tune: the published configs differ only in the version of the library that wrote them.
    chat, base = (models.load(f"meta-llama/Llama-2-13b-{kind}") for kind in ("chat-hf", "hf"))
    assert replace(chat, id=base.id) == base
