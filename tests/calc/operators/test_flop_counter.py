"""Matrix FLOP of the operator table against PyTorch's own counter, run over small transformers models on the CPU."""

import pytest

from calc.architectures import parse
from calc.errors import UnsupportedArchitecture
from calc.layout import Layout
from calc.operators import ForwardPass, compile_operators

pytestmark = pytest.mark.torch

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}
FAMILIES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "mistral": {"head_dim": 16, "sliding_window": None},
}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_prefill_flop_equal_what_torch_counts(family):
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **SIZES, **FAMILIES[family])
    try:
        spec = parse(config.to_dict() | {"architectures": _architecture(family)}, model_id=family)
    except UnsupportedArchitecture as error:
        pytest.fail(str(error))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    tokens = 48
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.arange(tokens)[None] % 512, use_cache=False)
    counted = counter.get_total_flops()
    rows = compile_operators(spec, Layout()).evaluate(ForwardPass.prefill(tokens)).rows()
    ours = sum(row["count"] * row["flop"] for row in rows if row["kind"] in ("gemm", "experts"))
    head = next(row["flop"] for row in rows if row["name"] == "output head")
    ours += head * (tokens - 1)  # torch computes logits of every position
    # eager attention multiplies the full square, twice; ours counts the causal half
    square = 2 * 2 * tokens * tokens * 64 * 3
    rotary = counted - ours - square
    assert 0 <= rotary <= 0.002 * counted  # angles are a small product of their own in torch


def _architecture(family):
    names = {
        "llama": "LlamaForCausalLM",
        "qwen2": "Qwen2ForCausalLM",
        "qwen3": "Qwen3ForCausalLM",
        "mistral": "MistralForCausalLM",
    }
    return [names[family]]
