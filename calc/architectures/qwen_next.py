"""Qwen3-Next and Qwen3.5, text: three gated delta nets to one gated attention layer, dense or mixture.

Sources: modelling code in transformers 5; tensor names of the published checkpoints for the prediction layer.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from calc.architectures.assembly import causal_lm, max_positions, stated_state_format
from calc.architectures.config_reader import ConfigReader
from calc.architectures.draft import mtp_stack
from calc.architectures.family import Family
from calc.architectures.layers import grouped_attention
from calc.architectures.mixers import gated_delta_net
from calc.architectures.mixtures import qwen_feed_forwards
from calc.architectures.recipe import PRE_NORMS, Recipe, dense_mlp
from calc.architectures.tensors import linear, norm, norms
from calc.model import Attention, Block, Mixer, Mlp, ModelSpec, Moe, Part, Split, Stack

RECIPE: Final = Recipe(architecture="Qwen3NextForCausalLM", model_types=())


def parse_qwen_next(
    config: ConfigReader,
    *,
    fused: bool = False,
    architecture: str = "Qwen3_5ForCausalLM",
    outer: ConfigReader | None = None,
    stacks: tuple[Stack, ...] = (),
) -> ModelSpec:
    """Delta nets and attention in turn. `fused`: Qwen3-Next's layout of the delta net's input projections."""
    width, layers = config.int("hidden_size"), config.layers()
    kinds = config.words("layer_types", allowed=("linear_attention", "full_attention"), length=layers)
    every = config.int("full_attention_interval", default=4)
    if kinds is None:
        kinds = ["full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(layers)]
    config.expect("attn_output_gate", True)
    config.expect("use_sliding_window", False)
    mixers: dict[str, Attention | Mixer] = {
        "full_attention": gated_attention(config, width),
        "linear_attention": delta_net(config, width, fused=fused),
    }
    feed_forwards = feed_forward_layers(config, width)
    block_norms = norms(width, *PRE_NORMS)
    built: dict[tuple[str, int], Block] = {}
    blocks = []
    for kind, feed_forward in zip(kinds, feed_forwards, strict=True):
        key = (kind, id(feed_forward))
        if key not in built:
            built[key] = Block(sublayers=(mixers[kind], feed_forward), norms=block_norms)
        blocks.append(built[key])
    draft = Block(sublayers=(mixers["full_attention"], feed_forwards[-1]), norms=block_norms)
    own = config.bool("mtp_use_dedicated_embeddings", default=False)
    drafts = mtp_stack(config, draft, width, copies_embedding=own, path="mtp.layers")
    return causal_lm(
        config,
        default_architecture=architecture,
        width=width,
        blocks=blocks,
        final=norm("model.norm", width),
        max_positions=max_positions(config),
        stacks=(*stacks, *drafts),
        outer=outer,
    )


def feed_forward_layers(config: ConfigReader, width: int) -> list[Mlp | Moe]:
    """Mixtures with a gated shared expert, or one dense layer where the config names no experts."""
    if config.has("num_experts"):
        return qwen_feed_forwards(config, RECIPE, shared=True)
    config.ints("mlp_only_layers")
    mlp = dense_mlp(config, RECIPE, width)
    return [mlp] * config.layers()


def gated_attention(config: ConfigReader, width: int) -> Attention:
    """Grouped attention whose output is gated: the query projection is twice as wide."""
    n_heads, head_dim = config.int("num_attention_heads"), config.int("head_dim")
    bias = config.bool("attention_bias", default=False)
    gate = linear("self_attn.q_proj", width, n_heads * head_dim, Part.ATTENTION, Split.COLUMN, bias=bias)
    return grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=config.int("num_key_value_heads"),
        head_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=(head_dim, head_dim),
        extra=gate,
    )


def delta_net(config: ConfigReader, width: int, *, fused: bool) -> Mixer:
    """The gated delta net that the `linear_*` fields describe."""
    return gated_delta_net(
        width=width,
        n_key_heads=config.int("linear_num_key_heads"),
        n_value_heads=config.int("linear_num_value_heads"),
        key_dim=config.int("linear_key_head_dim"),
        value_dim=config.int("linear_value_head_dim"),
        kernel=config.int("linear_conv_kernel_dim", high=64),
        fused=fused,
        stated_format=stated_state_format(config),
    )


FAMILIES: Final = (
    Family(
        model_types=("qwen3_next",),
        parse=partial(parse_qwen_next, fused=True, architecture="Qwen3NextForCausalLM"),
        architectures=("Qwen3NextForCausalLM",),
    ),
    Family(
        model_types=("qwen3_5_text", "qwen3_5_moe_text"),
        parse=parse_qwen_next,
        architectures=("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"),
    ),
)
