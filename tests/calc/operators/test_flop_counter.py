"""Matrix FLOP of the operator table against PyTorch's own counter, run over small transformers models on the CPU."""

import pytest

from calc.architectures import parse
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
    "llama": ("LlamaForCausalLM", {}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 16}),
    "mistral": ("MistralForCausalLM", {"head_dim": 16, "sliding_window": None}),
    "mixtral": (
        "MixtralForCausalLM",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16},
    ),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "head_dim": 16,
            "mlp_only_layers": [],
            "decoder_sparse_step": 1,
        },
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        {
            "num_key_value_heads": 4,
            "q_lora_rank": 32,
            "kv_lora_rank": 24,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 16,
            "v_head_dim": 16,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "n_shared_experts": 1,
            "moe_intermediate_size": 48,
            "first_k_dense_replace": 1,
            "num_nextn_predict_layers": 0,
        },
    ),
}
TOKENS = 48


@pytest.mark.parametrize("family", list(FAMILIES))
def test_prefill_flop_equal_what_torch_counts(family):
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig, AutoModelForCausalLM

    architecture, own = FAMILIES[family]
    config = AutoConfig.for_model(family, **{**SIZES, **own})
    spec = parse(config.to_dict() | {"architectures": [architecture]}, model_id=family)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.arange(TOKENS)[None] % 512, use_cache=False)
    counted = counter.get_total_flops()
    rows = compile_operators(spec, Layout()).evaluate(ForwardPass.prefill(TOKENS)).rows()
    ours = sum(row["count"] * row["flop"] for row in rows if row["kind"] in ("gemm", "experts"))
    head = next(row["flop"] for row in rows if row["name"] == "output head")
    ours += head * (TOKENS - 1)  # torch computes logits of every position
    # eager attention multiplies the full square, twice; the table counts the causal half
    dims = 48 if family == "deepseek_v3" else 32  # of a query-key product and of a value product, together
    square = 2 * TOKENS * TOKENS * 4 * dims * 3
    rotary = counted - ours - square
    assert 0 <= rotary <= 0.002 * counted  # angles are a small product of their own in torch
    causal = sum(row["count"] * row["flop"] for row in rows if row["kind"] == "prefill attention")
    assert causal == pytest.approx(square * (TOKENS + 1) / (2 * TOKENS))
