"""OPT: learned positions (two rows more than the config says), biases everywhere, optionally a narrow embedding."""

from __future__ import annotations

from typing import Final

from calc.architectures.assembly import causal_lm, even_head_dim
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import grouped_attention, plain_mlp
from calc.architectures.tensors import Weights, linear, norm, norms, tensor
from calc.model import Block, ModelSpec, Part

POSITION_OFFSET: Final = 2  # OPTLearnedPositionalEmbedding keeps two unused rows in front


def parse_opt(config: ConfigReader) -> ModelSpec:
    """OPT; with `do_layer_norm_before` false (350M) there is no final norm."""
    width = config.int("hidden_size")
    n_heads = config.int("num_attention_heads")
    bias = config.bool("enable_bias", default=True)
    affine = config.bool("layer_norm_elementwise_affine", default=True)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=even_head_dim(config, width, n_heads),
        qkv_bias=bias,
        out_bias=bias,
        names=("q_proj", "k_proj", "v_proj", "out_proj"),
    )
    mlp = plain_mlp(
        width=width, intermediate=config.int("ffn_dim"), bias=bias, prefix="", names=("fc1", "fc2")
    )
    block_norms: Weights = (
        norms(width, "self_attn_layer_norm", "final_layer_norm", bias=True) if affine else ()
    )
    positions = config.int("max_position_embeddings")
    extra = tensor("model.decoder.embed_positions", positions + POSITION_OFFSET, width, part=Part.POSITION)
    narrow = config.int("word_embed_proj_dim", default=width)
    if narrow != width:
        extra += linear("model.decoder.project_in", narrow, width, Part.PROJECTOR)
        extra += linear("model.decoder.project_out", width, narrow, Part.PROJECTOR)
    removed = config.bool("_remove_final_layer_norm", default=False)
    if config.bool("do_layer_norm_before", default=True) and affine and not removed:
        extra += norm("model.decoder.final_layer_norm", width, bias=True)
    return causal_lm(
        config,
        default_architecture="OPTForCausalLM",
        width=width,
        blocks=[Block(sublayers=(attention, mlp), norms=block_norms)] * config.layers(),
        final=extra,
        tied_default=True,
        max_positions=positions,
        embedding_name="model.decoder.embed_tokens",
        path="model.decoder.layers",
        head_width=narrow,
    )


FAMILIES: Final = (Family(model_types=("opt",), parse=parse_opt, architectures=("OPTForCausalLM",)),)
