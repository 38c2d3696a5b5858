"""LFM2: gated short convolutions with attention here and there, dense or (LFM2-MoE) with mixtures.

Source: modelling code in transformers 5.
"""

from __future__ import annotations

from typing import Final

from calc.architectures.assembly import causal_lm, even_head_dim, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import gated_mlp, grouped_attention, mixture
from calc.architectures.mixers import short_convolution
from calc.architectures.tensors import norm, norms
from calc.model import Block, Mlp, ModelSpec, Moe


def lfm2_blocks(config: ConfigReader) -> list[Block]:
    """LFM2: short convolutions and attention with per-head norms; the feed-forward width is adjusted by a rule."""
    width, layers = config.int("hidden_size"), config.layers()
    kinds = config.words("layer_types", allowed=("conv", "full_attention"), length=layers)
    indices = config.ints("full_attn_idxs")
    if kinds is None:
        full = set(range(layers) if indices is None else indices)
        kinds = ["full_attention" if layer in full else "conv" for layer in range(layers)]
    n_heads = config.int("num_attention_heads")
    head_dim = even_head_dim(config, width, n_heads)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=config.int("num_key_value_heads"),
        head_dim=head_dim,
        qk_norm=(head_dim, head_dim),
        names=("q_proj", "k_proj", "v_proj", "out_proj"),
    )
    convolution = short_convolution(
        width=width,
        kernel=config.int("conv_L_cache", default=3, high=64),
        bias=config.bool("conv_bias", default=False),
    )
    for same in ("conv_dim", "conv_dim_out", "block_dim"):
        config.expect(same, width)
    config.expect("num_heads", n_heads)
    block_norms = norms(width, "operator_norm", "ffn_norm")
    built: dict[tuple[str, int], Block] = {}
    blocks = []
    for kind, feed_forward in zip(kinds, _feed_forwards(config, width, layers), strict=True):
        key = (kind, id(feed_forward))
        if key not in built:
            mixing = convolution if kind == "conv" else attention
            built[key] = Block(sublayers=(mixing, feed_forward), norms=block_norms)
        blocks.append(built[key])
    return blocks


def _feed_forwards(config: ConfigReader, width: int, layers: int) -> list[Mlp | Moe]:
    """Dense layers, or in LFM2-MoE `num_dense_layers` of them and then mixtures."""
    experts = config.optional_int("num_experts")
    names = ("w1", "w3", "w2")
    if experts is None:
        intermediate = _lfm2_intermediate(config)
        return [
            gated_mlp(width=width, intermediate=intermediate, prefix="feed_forward", names=names)
        ] * layers
    first = config.int("num_dense_layers", default=2, low=0)
    dense = gated_mlp(
        width=width, intermediate=config.int("intermediate_size"), prefix="feed_forward", names=names
    )
    sparse = mixture(
        width=width,
        n_experts=experts,
        top_k=config.int("num_experts_per_tok"),
        intermediate=config.int("moe_intermediate_size"),
        correction="buffer" if config.bool("use_expert_bias", default=True) else "",
        prefix="feed_forward",
        names=names,
    )
    return [dense if layer < first else sparse for layer in range(layers)]


def _lfm2_intermediate(config: ConfigReader) -> int:
    intermediate = config.int("block_ff_dim", "intermediate_size")
    if not config.bool("block_auto_adjust_ff_dim", default=True):
        return intermediate
    multiplier = config.float("block_ffn_dim_multiplier", default=1.0)
    if not 0 < multiplier <= 64:
        raise config.unsupported("block_ffn_dim_multiplier", "it must be positive and at most 64")
    adjusted = int(multiplier * int(2 * intermediate / 3))
    multiple = config.int("block_multiple_of", default=256)
    return multiple * max(-(-adjusted // multiple), 1)


def parse_lfm2(config: ConfigReader) -> ModelSpec:
    """LFM2 and LFM2-MoE text models."""
    width = config.int("hidden_size")
    return causal_lm(
        config,
        default_architecture="Lfm2ForCausalLM",
        width=width,
        blocks=lfm2_blocks(config),
        final=norm("model.embedding_norm", width),
        tied=config.bool("tie_embedding", "tie_word_embeddings", default=True),
        max_positions=max_positions(config),
    )


FAMILIES: Final = (
    Family(
        model_types=("lfm2", "lfm2_moe"),
        parse=parse_lfm2,
        architectures=("Lfm2ForCausalLM", "Lfm2MoeForCausalLM"),
    ),
)
