"""The textbook's closed forms against specs read from configs: two ways to the same integers."""

import pytest

from calc import textbook
from calc.architectures import parse
from calc.memory.kv import kv_bytes_per_token
from calc.parameters import count_parameters

# Llama-style shapes (no biases), as their published configs state them.
SHAPES = {
    "example 8B": (4096, 32, 8, 128, 14336, 128_000, 32, False),
    "Llama-2-7B": (4096, 32, 32, 128, 11008, 32_000, 32, False),
    "Llama-2-13B": (5120, 40, 40, 128, 13824, 32_000, 40, False),
    "Llama-3-70B": (8192, 64, 8, 128, 28672, 128_256, 80, False),
    "Llama-3.2-1B": (2048, 32, 8, 64, 8192, 128_256, 16, True),
}
FIELDS = (
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "num_hidden_layers",
    "tie_word_embeddings",
)
PUBLISHED = {  # parameters in the models' safetensors indexes on the hub
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-13B": 13_015_864_320,
    "Llama-3-70B": 70_553_706_496,
    "Llama-3.2-1B": 1_235_814_400,
}


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_and_cache_agree_with_the_config(name):
    config = dict(zip(FIELDS, SHAPES[name], strict=True))
    spec = parse({**config, "model_type": "llama", "max_position_embeddings": 4096}, model_id=name)
    counted = textbook.llama_parameters(**config)
    assert counted.total == count_parameters(spec).total == PUBLISHED.get(name, 8_028_164_096)
    closed = textbook.kv_bytes_per_token(
        layers=config["num_hidden_layers"],
        n_kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        bytes_per_element=2,
    )
    assert closed == kv_bytes_per_token(spec, kv_dtype="bf16")
