"""The longest text of a model: what its config says, what YaRN stretches it to, and a limit beyond that."""

import pytest

from calc.architectures import parse
from calc.engine import Engine
from calc.layout import Layout
from calc.memory.engines import EngineSettings, ledger
from presets import accelerators, models

# Qwen/Qwen2.5-7B-Instruct's config.json with what its card says to add for long texts: 131,072 tokens.
QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 32768,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 152064,
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}


def longest(**changed):
    return parse({**QWEN, **changed}, model_id="x/y").max_positions


@pytest.mark.parametrize("name", ["rope_scaling", "rope_parameters"])
def test_yarn_stretches_what_the_config_was_trained_with(name):
    assert longest() == 32768
    assert longest(**{name: YARN}) == 131072
    assert longest(**{name: {**YARN, "rope_type": "yarn"}}) == 131072


@pytest.mark.parametrize(
    "scaling",
    [
        {**YARN, "type": "linear"},
        {**YARN, "type": "llama3"},
        {"type": "yarn", "factor": 4.0},
        {**YARN, "factor": float("inf")},
        {**YARN, "factor": "4"},
        {**YARN, "factor": 0.5},
        "yarn",
        [],
        None,
    ],
)
def test_what_states_no_stretched_length_changes_none(scaling):
    assert longest(rope_scaling=scaling) == 32768


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("openai/gpt-oss-120b", 131072),
        ("deepseek-ai/DeepSeek-V3", 163840),
        ("meta-llama/Meta-Llama-3.1-8B", 131072),
    ],
)
def test_published_lengths_stay_what_they_are(model, published):
    """Model cards of 2026-11: their configs state the stretched length already."""
    assert models.load(model).max_positions == published


@pytest.mark.parametrize(
    ("engine", "variable"),
    [
        (Engine.VLLM, "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"),
        (Engine.SGLANG, "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"),
        (Engine.TENSORRT_LLM, ""),
    ],
)
def test_a_limit_beyond_the_model_is_said(engine, variable):
    qwen, card = models.load("Qwen/Qwen3-0.6B"), accelerators.load("l4")

    def said(length):
        settings = EngineSettings(engine=engine, max_model_len=length)
        return [text for text in ledger(qwen, card, Layout(), settings).assumptions if "40,960" in text]

    assert said(40960) == []
    assert len(said(40961)) == 1
    assert variable in said(40961)[0]
