"""Decoders of Llama's shape whose code lives in their checkpoints: ChatGLM 2 to 4, Qwen 1, MiMo.

Sources: modeling_chatglm.py, modeling_qwen.py and modeling_mimo.py of the published checkpoints.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from calc.architectures.assembly import LM, causal_lm, even_head_dim
from calc.architectures.config_reader import ConfigReader
from calc.architectures.dense_llama import QWEN2
from calc.architectures.draft import draft_stack
from calc.architectures.family import Family
from calc.architectures.layers import gated_mlp, grouped_attention
from calc.architectures.recipe import dense_mlp, parse_dense
from calc.architectures.tensors import norm, norms
from calc.model import Block, ModelSpec


def parse_chatglm(config: ConfigReader) -> ModelSpec:
    """ChatGLM 2, 3 and GLM-4-9B: fused qkv with bias, groups, SwiGLU in one matrix; the class name has no "LM" in it."""
    width = config.int("hidden_size")
    n_heads = config.int("num_attention_heads")
    config.expect("rmsnorm", True)
    config.expect("pre_seq_len", 0)
    config.expect("apply_residual_connection_post_layernorm", False)
    bias = config.bool("add_bias_linear", default=False)
    grouped = config.bool("multi_query_attention", default=False)
    groups = config.int("multi_query_group_num", default=1)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=groups if grouped else n_heads,
        head_dim=config.int("kv_channels", default=max(width // n_heads, 1)),
        qkv_bias=bias or config.bool("add_qkv_bias", default=False),
        out_bias=bias,
        prefix="self_attention",
        names=("query_key_value", "query_key_value", "query_key_value", "dense"),
    )
    mlp = gated_mlp(
        width=width,
        intermediate=config.int("ffn_hidden_size"),
        bias=bias,
        names=("dense_h_to_4h", "dense_h_to_4h", "dense_4h_to_h"),
    )
    block = Block(
        sublayers=(attention, mlp), norms=norms(width, "input_layernorm", "post_attention_layernorm")
    )
    last = (
        norm("transformer.encoder.final_layernorm", width)
        if config.bool("post_layer_norm", default=True)
        else ()
    )
    return causal_lm(
        config,
        default_architecture="ChatGLMModel",
        width=width,
        blocks=[block] * config.layers("num_layers", "num_hidden_layers"),
        final=last,
        max_positions=config.optional_int("seq_length"),
        embedding_name="transformer.embedding.word_embeddings",
        path="transformer.encoder.layers",
        vocab_size=config.int("padded_vocab_size", "vocab_size"),
        kind=LM,
    )


def parse_qwen1(config: ConfigReader) -> ModelSpec:
    """Qwen 1: `intermediate_size` counts gate and up together."""
    width = config.int("hidden_size")
    n_heads = config.int("num_attention_heads")
    config.expect("no_bias", True)
    head_dim = config.int("kv_channels", default=max(width // n_heads, 1))
    if head_dim * n_heads != width:
        raise config.unsupported("kv_channels", f"{n_heads} heads must fill the width {width}")
    both = config.int("intermediate_size")
    if both % 2:
        raise config.unsupported("intermediate_size", "it counts gate and up together and must be even")
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=even_head_dim(config, width, n_heads),
        qkv_bias=True,
        prefix="attn",
        names=("c_attn", "c_attn", "c_attn", "c_proj"),
    )
    mlp = gated_mlp(width=width, intermediate=both // 2, names=("w1", "w2", "c_proj"))
    return causal_lm(
        config,
        default_architecture="QWenLMHeadModel",
        width=width,
        blocks=[Block(sublayers=(attention, mlp), norms=norms(width, "ln_1", "ln_2"))] * config.layers(),
        final=norm("transformer.ln_f", width),
        max_positions=config.optional_int("seq_length") or config.optional_int("max_position_embeddings"),
        embedding_name="transformer.wte",
        path="transformer.h",
    )


def parse_mimo(config: ConfigReader) -> ModelSpec:
    """MiMo-7B: Qwen 2's shape and one prediction layer."""
    config.expect("attention_bias", True)
    spec = parse_dense(config, QWEN2)
    drafts = draft_stack(config, QWEN2, dense_mlp(config, QWEN2, spec.width), spec.width)
    return replace(spec, stacks=(*spec.stacks, *drafts))


FAMILIES: Final = (
    Family(model_types=("chatglm",), parse=parse_chatglm, architectures=("ChatGLMModel",)),
    Family(model_types=("qwen",), parse=parse_qwen1, architectures=("QWenLMHeadModel",)),
    Family(model_types=("mimo",), parse=parse_mimo, architectures=("MiMoForCausalLM",)),
)
