"""Narrow real models of each cached kind: after a forward pass in 16 bit, transformers' cache holds the bytes we count.

Two things of transformers are known and taken into account: a window keeps the last window - 1 tokens (the current one
is in hand), and a convolution keeps its whole kernel where kernel - 1 rows are needed.
"""

import pytest

from calc.architectures import parse
from calc.memory import kv

pytestmark = pytest.mark.torch

TOKENS = 12
BASE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "pad_token_id": 0,
}
LATENT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 8,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "vocab_size": 64,
    "pad_token_id": 0,
}
NEXT = {
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
MODELS = {
    "mha": (
        "opt",
        "OPTForCausalLM",
        {
            "hidden_size": 32,
            "ffn_dim": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "vocab_size": 64,
            "word_embed_proj_dim": 32,
        },
    ),
    "gqa": ("llama", "LlamaForCausalLM", BASE),
    "mqa": (
        "gpt_bigcode",
        "GPTBigCodeForCausalLM",
        {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 64},
    ),
    "windows": ("gemma2", "Gemma2ForCausalLM", BASE | {"head_dim": 8, "sliding_window": 6}),
    "windows, sinks": (
        "gpt_oss",
        "GptOssForCausalLM",
        BASE | {"head_dim": 8, "sliding_window": 6, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "chunks": (
        "llama4_text",
        "Llama4ForCausalLM",
        BASE
        | {"head_dim": 8, "intermediate_size_mlp": 48, "attention_chunk_size": 8, "num_local_experts": 2},
    ),
    "shared cache": (
        "gemma4_text",
        "Gemma4ForCausalLM",
        BASE
        | {
            "head_dim": 8,
            "global_head_dim": 16,
            "sliding_window": 6,
            "num_kv_shared_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 64,
        },
    ),
    "latent": ("deepseek_v3", "DeepseekV3ForCausalLM", LATENT),
    "latent with indexer": (
        "glm_moe_dsa",
        "GlmMoeDsaForCausalLM",
        LATENT | {"qk_head_dim": 12, "index_head_dim": 8, "index_n_heads": 2, "index_topk": 4},
    ),
    "mamba 1": (
        "mamba",
        "MambaForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "vocab_size": 64, "pad_token_id": 0},
    ),
    "mamba 2": (
        "mamba2",
        "Mamba2ForCausalLM",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_heads": 8,
            "head_dim": 8,
            "state_size": 8,
            "n_groups": 2,
            "vocab_size": 64,
            "pad_token_id": 0,
        },
    ),
    "jamba": (
        "jamba",
        "JambaForCausalLM",
        BASE
        | {
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "mamba_d_state": 4,
            "mamba_dt_rank": 2,
        },
    ),
    "bamba": (
        "bamba",
        "BambaForCausalLM",
        BASE | {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8},
    ),
    "both in a layer": (
        "falcon_h1",
        "FalconH1ForCausalLM",
        BASE | {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_ssm": 64, "mamba_d_state": 8},
    ),
    "granite 4": (
        "granitemoehybrid",
        "GraniteMoeHybridForCausalLM",
        BASE
        | {
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_d_state": 8,
            "shared_intermediate_size": 16,
            "num_local_experts": 2,
            "layer_types": ["mamba", "attention"] * 2,
        },
    ),
    "nemotron": (
        "nemotron_h",
        "NemotronHForCausalLM",
        {
            "hidden_size": 32,
            "intermediate_size": 48,
            "layers_block_type": ["mamba", "attention", "mlp", "moe"],
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "mamba_num_heads": 8,
            "mamba_head_dim": 8,
            "n_groups": 2,
            "ssm_state_size": 8,
            "n_routed_experts": 4,
            "moe_intermediate_size": 16,
            "moe_shared_expert_intermediate_size": 16,
            "vocab_size": 64,
            "pad_token_id": 0,
        },
    ),
    "shared transformer": (
        "zamba2",
        "Zamba2ForCausalLM",
        {
            "hidden_size": 32,
            "num_hidden_layers": 4,
            "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
            "num_attention_heads": 4,
            "num_mem_blocks": 1,
            "n_mamba_heads": 8,
            "mamba_d_state": 8,
            "adapter_rank": 4,
            "intermediate_size": 48,
            "vocab_size": 64,
            "pad_token_id": 0,
        },
    ),
    "delta net": (
        "qwen3_next",
        "Qwen3NextForCausalLM",
        BASE
        | NEXT
        | {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
        },
    ),
    "delta net, dense": ("qwen3_5_text", "Qwen3_5ForCausalLM", BASE | NEXT),
    "short convolution": (
        "lfm2",
        "Lfm2ForCausalLM",
        BASE | {"full_attn_idxs": [1, 3], "block_multiple_of": 8},
    ),
    "lightning": (
        "minimax",
        "MiniMaxForCausalLM",
        BASE
        | {
            "head_dim": 8,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "block_size": 4,
        },
    ),
    "rwkv": ("rwkv", "RwkvForCausalLM", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64}),
}


def ran(model_type, name, overrides, tokens=TOKENS, **inputs):
    """(spec, what the model kept) after one forward pass of a random model in bf16."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **overrides)
    model = getattr(transformers, name)(config).eval().to(torch.bfloat16)
    ids = torch.randint(1, 60, (1, tokens))
    with torch.no_grad():
        out = model(input_ids=ids, use_cache=True, **inputs)
    fields = {**config.to_dict(), "architectures": [name], "dtype": "bfloat16"}
    kind = "llama4" if model_type == "llama4_text" else model_type
    kept = next(out[key] for key in ("past_key_values", "cache", "state") if out.get(key) is not None)
    return parse({**fields, "model_type": kind}, model_id=model_type), kept


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


def kept_bytes(cache):
    """All bytes that a cache keeps; convolutions as kernel - 1 rows."""
    if isinstance(cache, list):  # RWKV's state
        return sum(bytes_of(tensor) for tensor in cache)
    total = 0
    for layer in cache.layers:
        for name in ("keys", "values", "indexer_keys"):
            tensor = getattr(layer, name, None)
            total += 0 if tensor is None else bytes_of(tensor)
        for tensor in getattr(layer, "conv_states", {}).values():
            kernel = tensor.shape[-1]
            total += bytes_of(tensor) * (kernel - 1) // kernel
        total += sum(
            bytes_of(tensor)
            for tensor in getattr(layer, "recurrent_states", {}).values()
            if tensor is not None
        )
    return total + sum(bytes_of(t) for t in getattr(cache, "linear_cache", []) if hasattr(t, "numel"))


@pytest.mark.parametrize("kind", MODELS)
def test_a_sequence_keeps_the_bytes_that_we_count(kind):
    spec, cache = ran(*MODELS[kind])
    past_windows = sum(w.bytes_per_token for w in kv.windows(spec) if w.window <= TOKENS)
    assert kept_bytes(cache) == kv.sequence_bytes(spec, TOKENS) - past_windows


@pytest.mark.parametrize(
    ("model_type", "name", "overrides"),
    [
        (
            "t5",
            "T5ForConditionalGeneration",
            {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 64},
        ),
        (
            "bart",
            "BartForConditionalGeneration",
            {
                "d_model": 32,
                "encoder_layers": 2,
                "decoder_layers": 3,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 48,
                "decoder_ffn_dim": 48,
                "vocab_size": 64,
                "pad_token_id": 0,
            },
        ),
    ],
)
def test_an_encoder_decoder_keeps_its_own_and_the_encoders_tokens(model_type, name, overrides):
    import torch

    spec, cache = ran(model_type, name, overrides, decoder_input_ids=torch.randint(1, 60, (1, 5)))
    kept = kept_bytes(cache.self_attention_cache) + kept_bytes(cache.cross_attention_cache)
    assert kept == kv.sequence_bytes(spec, 5, encoder_tokens=TOKENS)


def test_compressed_entries_of_deepseek_v4():
    """300 tokens: one entry per 4 or 128 tokens and index keys; transformers copies the window's one vector as K and V."""
    spec, cache = ran(
        "deepseek_v4",
        "DeepseekV4ForCausalLM",
        {
            "hidden_size": 32,
            "moe_intermediate_size": 16,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "head_dim": 16,
            "q_lora_rank": 16,
            "o_groups": 2,
            "o_lora_rank": 8,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "index_n_heads": 2,
            "index_head_dim": 8,
            "index_topk": 4,
            "sliding_window": 16,
            "vocab_size": 64,
            "pad_token_id": 0,
            "partial_rotary_factor": 0.5,
            "layer_types": [
                "sliding_attention",
                "compressed_sparse_attention",
                "heavily_compressed_attention",
                "compressed_sparse_attention",
            ],
        },
        tokens=300,
    )
    entries = sum(
        bytes_of(tensor)
        for layer in cache.layers
        for tensor in getattr(layer, "compressed_kv", {}).values()
        if tensor is not None
    )
    windows = kv.windows(spec)
    assert entries == kv.sequence_bytes(spec, 300) - sum(w.window * w.bytes_per_token for w in windows)
    one_copy = sum(bytes_of(layer.keys) for layer in cache.layers)
    assert one_copy == sum((w.window - 1) * w.bytes_per_token for w in windows)
