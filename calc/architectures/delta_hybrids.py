"""Hybrids of other delta nets with attention: Kimi Linear (with latent attention) and OLMo Hybrid (with plain attention).

Sources: modelling code in transformers 5; the published Kimi Linear config (its `linear_attn_config` counts from 1).
"""

from __future__ import annotations

from typing import Final

from calc.architectures.assembly import causal_lm, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.deepseek import feed_forward_layers
from calc.architectures.family import Family
from calc.architectures.latent import latent_attention
from calc.architectures.layers import gated_mlp, grouped_attention
from calc.architectures.recipe import PRE_NORMS
from calc.architectures.tensors import linear, norm, norms, tensor, vector
from calc.errors import InputError
from calc.model import Block, Mixer, MixerKind, ModelSpec, Part, Split

KINDS: Final = ("linear_attention", "full_attention")


def parse_kimi_linear(config: ConfigReader) -> ModelSpec:
    """Kimi Linear: Kimi delta attention with latent attention every fourth layer, mixtures after a dense beginning."""
    width = config.int("hidden_size")
    feed_forwards = feed_forward_layers(config, "buffer")
    full = _full_layers(config, len(feed_forwards))
    kda = _kimi_delta(config, width)
    for unused in ("use_grouped_topk", "mla_use_nope", "linear_attn_config"):
        config.raw(unused)
    latent = latent_attention(config, width)
    built: dict[tuple[bool, int], Block] = {}
    blocks = []
    for is_full, feed_forward in zip(full, feed_forwards, strict=True):
        key = (is_full, id(feed_forward))
        if key not in built:
            built[key] = Block(
                sublayers=(latent if is_full else kda, feed_forward), norms=norms(width, *PRE_NORMS)
            )
        blocks.append(built[key])
    return causal_lm(
        config,
        default_architecture="KimiLinearForCausalLM",
        width=width,
        blocks=blocks,
        final=norm("model.norm", width),
        max_positions=max_positions(config),
    )


def _full_layers(config: ConfigReader, layers: int) -> list[bool]:
    listed = config.words("layer_types", allowed=KINDS, length=layers)
    if listed:
        return [kind == "full_attention" for kind in listed]
    section = config.need_section("linear_attn_config")
    full, kda = set(section.ints("full_attn_layers") or ()), set(section.ints("kda_layers") or ())
    if full & kda or full | kda != set(range(1, layers + 1)):
        raise section.unsupported(
            "kda_layers", f"with full_attn_layers it must name each of the layers 1 to {layers}"
        )
    return [layer + 1 in full for layer in range(layers)]


def _kimi_delta(config: ConfigReader, width: int) -> Mixer:
    """Kimi delta attention: a decay per channel and an output gate, both of low rank; a key x value matrix per head."""
    section = config.section("linear_attn_config") or config
    n_heads = section.int("num_heads", "linear_num_heads")
    head_dim = (
        section.int("head_dim", "linear_head_dim") if section is not config else config.int("linear_head_dim")
    )
    kernel = section.int("short_conv_kernel_size", "linear_conv_kernel_dim", high=64)
    inner, part = n_heads * head_dim, Part.MIXER
    prefix = "self_attn"
    weights = tuple(
        weight
        for name in ("q_proj", "k_proj", "v_proj")
        for weight in linear(f"{prefix}.{name}", width, inner, part, Split.COLUMN)
    )
    weights += (
        tensor(f"{prefix}.conv1d", 3 * inner, 1, kernel, part=part, split=Split.COLUMN)
        + vector(f"{prefix}.dt_bias", inner, part, Split.COLUMN)
        + vector(f"{prefix}.A_log", n_heads, part, Split.COLUMN)
        + linear(f"{prefix}.f_a_proj", width, head_dim, part)
        + linear(f"{prefix}.f_b_proj", head_dim, inner, part, Split.COLUMN)
        + linear(f"{prefix}.b_proj", width, n_heads, part, Split.COLUMN)
        + linear(f"{prefix}.g_a_proj", width, head_dim, part)
        + linear(f"{prefix}.g_b_proj", head_dim, inner, part, Split.COLUMN)
        + norm(f"{prefix}.o_norm", head_dim)
        + linear(f"{prefix}.o_proj", inner, width, part, Split.ROW)
    )
    return Mixer(
        kind=MixerKind.GATED_DELTA_NET,
        conv_elements=(kernel - 1) * 3 * inner,
        recurrent_elements=n_heads * head_dim * head_dim,
        n_heads=n_heads,
        weights=weights,
    )


def parse_olmo_hybrid(config: ConfigReader) -> ModelSpec:
    """OLMo Hybrid: gated delta nets before norms, plain attention with norms behind it, by `layer_types`."""
    width, layers = config.int("hidden_size"), config.layers()
    kinds = config.words("layer_types", allowed=KINDS, length=layers)
    if kinds is None:
        raise config.unsupported("layer_types", "it must say which layers have attention")
    n_heads = config.int("num_attention_heads")
    n_kv_heads = config.int("num_key_value_heads", default=n_heads)
    if width % n_heads:
        raise config.unsupported("num_attention_heads", f"{width} must be a multiple of it")
    head_dim = width // n_heads
    bias = config.bool("attention_bias", default=False)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=(n_heads * head_dim, n_kv_heads * head_dim),
    )
    mlp = gated_mlp(width=width, intermediate=config.int("intermediate_size"))
    full = Block(
        sublayers=(attention, mlp),
        norms=norms(width, "post_attention_layernorm", "post_feedforward_layernorm"),
    )
    linear_block = Block(sublayers=(_olmo_delta(config, width), mlp), norms=norms(width, *PRE_NORMS))
    return causal_lm(
        config,
        default_architecture="OlmoHybridForCausalLM",
        width=width,
        blocks=[full if kind == "full_attention" else linear_block for kind in kinds],
        final=norm("model.norm", width),
        max_positions=max_positions(config),
    )


def _olmo_delta(config: ConfigReader, width: int) -> Mixer:
    """A gated delta net with q, k and v apart and an output gate."""
    n_keys, n_values = config.int("linear_num_key_heads"), config.int("linear_num_value_heads")
    key_dim, value_dim = config.int("linear_key_head_dim"), config.int("linear_value_head_dim")
    kernel = config.int("linear_conv_kernel_dim", high=64)
    if n_values % n_keys:
        raise InputError(
            "linear_num_key_heads", n_keys, f"linear_num_value_heads ({n_values}) must be a multiple of it"
        )
    keys, values, part = n_keys * key_dim, n_values * value_dim, Part.MIXER
    channels = 2 * keys + values
    prefix = "linear_attn"
    weights = (
        linear(f"{prefix}.q_proj", width, keys, part, Split.COLUMN)
        + linear(f"{prefix}.k_proj", width, keys, part, Split.COLUMN)
        + linear(f"{prefix}.v_proj", width, values, part, Split.COLUMN)
        + linear(f"{prefix}.a_proj", width, n_values, part, Split.COLUMN)
        + linear(f"{prefix}.b_proj", width, n_values, part, Split.COLUMN)
        + linear(f"{prefix}.g_proj", width, values, part, Split.COLUMN)
        + linear(f"{prefix}.o_proj", values, width, part, Split.ROW)
        + tensor(f"{prefix}.conv1d", channels, 1, kernel, part=part, split=Split.COLUMN)
        + vector(f"{prefix}.A_log", n_values, part, Split.COLUMN)
        + vector(f"{prefix}.dt_bias", n_values, part, Split.COLUMN)
        + norm(f"{prefix}.o_norm", value_dim)
    )
    return Mixer(
        kind=MixerKind.GATED_DELTA_NET,
        conv_elements=(kernel - 1) * channels,
        recurrent_elements=n_values * key_dim * value_dim,
        n_heads=n_values,
        weights=weights,
    )


FAMILIES: Final = (
    Family(model_types=("kimi_linear",), parse=parse_kimi_linear, architectures=("KimiLinearForCausalLM",)),
    Family(model_types=("olmo_hybrid",), parse=parse_olmo_hybrid, architectures=("OlmoHybridForCausalLM",)),
)
