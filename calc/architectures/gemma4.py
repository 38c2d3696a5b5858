"""Gemma 4: two head widths, layers that read an earlier layer's cache, per-layer embeddings, experts beside the MLP.

Source: modelling code in transformers 5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from calc.architectures import audio
from calc.architectures.assembly import LM, causal_lm, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.gemma import FOUR_NORMS
from calc.architectures.layers import gated_mlp, grouped_attention, mixture
from calc.architectures.tensors import Weights, linear, norm, norms, tensor, vector
from calc.architectures.towers import buffers, clip_bounds, tower
from calc.architectures.windows import FULL, SLIDING
from calc.model import Attention, Block, Mlp, ModelSpec, Moe, Part, Split, Stack, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """What tells one layer from another."""

    full: bool
    shares_cache: bool


def parse_gemma4(config: ConfigReader) -> ModelSpec:
    """Gemma 4 with its towers, or its text part alone."""
    text = config.section("text_config") or config
    width = text.int("hidden_size")
    stacks: tuple[Stack, ...] = ()
    vision, hearing = config.section("vision_config"), config.section("audio_config")
    if vision is not None:
        stacks += _vision(vision, width)
    if hearing is not None:
        stacks += audio.gemma4_audio(hearing, width)
    layers = text.layers()
    per_layer = text.int("hidden_size_per_layer_input", default=256, low=0)
    kinds = _layers(text, layers)
    full = full_sizes(text, kinds)
    built = {kind: _block(text, width, kind, per_layer, full=full) for kind in dict.fromkeys(kinds)}
    extra: Weights = ()
    if per_layer:
        rows = text.int("vocab_size_per_layer_input", default=262144)
        extra = (
            Weight(
                name="embed_tokens_per_layer",
                shape=(rows, layers * per_layer),
                part=Part.EMBEDDING,
                split=Split.VOCAB,
            ),
        )
        extra += linear("per_layer_model_projection", width, layers * per_layer, Part.PROJECTOR)
        extra += norm("per_layer_projection_norm", per_layer)
    else:
        text.raw("vocab_size_per_layer_input")
    for unused in (
        "num_experts",
        "top_k_experts",
        "moe_intermediate_size",
        "use_double_wide_mlp",
        "num_global_key_value_heads",
    ):
        text.raw(unused)
    return causal_lm(
        text,
        default_architecture="Gemma4ForConditionalGeneration",
        width=width,
        blocks=[built[kind] for kind in kinds],
        final=norm("model.language_model.norm", width) + extra,
        tied_default=True,
        max_positions=max_positions(text),
        embedding_name="model.language_model.embed_tokens",
        path="model.language_model.layers",
        stacks=stacks,
        outer=config,
        kind=LM,
    )


def _layers(config: ConfigReader, layers: int) -> list[_Layer]:
    """The kind of each layer: the last is always full, the last `num_kv_shared_layers` read an earlier cache."""
    if config.raw("use_bidirectional_attention") not in (None, False, "vision"):
        raise config.unsupported("use_bidirectional_attention", "a decoder that looks ahead keeps no cache")
    listed = config.words("layer_types", allowed=(FULL, SLIDING), length=layers)
    kinds = listed or [SLIDING if (layer + 1) % 6 else FULL for layer in range(layers)]
    kinds[-1] = FULL
    shared = config.int("num_kv_shared_layers", default=0, low=0, high=layers)
    first = layers - shared
    if shared and set(kinds[:first]) != set(kinds):
        raise config.unsupported(
            "num_kv_shared_layers", "each kind of layer that shares a cache needs one that keeps it"
        )
    return [_Layer(full=kind == FULL, shares_cache=index >= first) for index, kind in enumerate(kinds)]


def full_sizes(config: ConfigReader, kinds: list[_Layer]) -> tuple[int, int]:
    """(head width, KV heads) of full layers: stated once, or layer by layer as transformers 5 saves them."""
    same = config.bool("attention_k_eq_v", default=False)
    grouped = config.optional_int("num_global_key_value_heads") if same else None
    heads = grouped or config.int("num_key_value_heads")
    overrides = config.section("per_layer_config")
    if overrides is None:
        return config.int("global_head_dim", default=512), heads
    found: set[tuple[int, int]] = set()
    for name in overrides.fields:
        layer = overrides.need_section(str(name))
        if not str(name).isdecimal() or int(name) >= len(kinds) or not kinds[int(name)].full:
            raise overrides.unsupported(str(name), "only full layers have sizes of their own")
        found.add((layer.int("head_dim"), layer.int("num_key_value_heads", default=heads)))
    if len(found) != 1 or len(overrides.fields) != sum(kind.full for kind in kinds):
        raise config.unsupported("per_layer_config", "all full layers must have the same sizes")
    sizes = found.pop()
    config.expect("global_head_dim", sizes[0])
    return sizes


def _block(config: ConfigReader, width: int, kind: _Layer, per_layer: int, *, full: tuple[int, int]) -> Block:
    wide = kind.shares_cache and config.bool("use_double_wide_mlp", default=False)
    mlp = gated_mlp(width=width, intermediate=config.int("intermediate_size") * (2 if wide else 1))
    sublayers: tuple[Attention | Mlp | Moe, ...] = (_attention(config, width, kind, full), mlp)
    block_norms = norms(width, *FOUR_NORMS)
    if config.bool("enable_moe_block", default=False):
        experts = config.int("num_experts")
        scales = vector("router.scale", width, Part.ROUTER) + vector(
            "router.per_expert_scale", experts, Part.ROUTER
        )
        moe = mixture(
            width=width,
            n_experts=experts,
            top_k=config.int("top_k_experts"),
            intermediate=config.int("moe_intermediate_size", "expert_intermediate_size"),
            prefix="moe",
            router="router.proj",
            extra=scales,
        )
        sublayers += (moe,)
        block_norms += norms(
            width,
            "post_feedforward_layernorm_1",
            "post_feedforward_layernorm_2",
            "pre_feedforward_layernorm_2",
        )
    if per_layer:
        block_norms += linear("per_layer_input_gate", width, per_layer, Part.MLP)
        block_norms += linear("per_layer_projection", per_layer, width, Part.MLP)
        block_norms += norm("post_per_layer_input_norm", width)
    return Block(sublayers=sublayers, norms=block_norms + buffers("layer_scalar", 1))


def _attention(config: ConfigReader, width: int, kind: _Layer, full: tuple[int, int]) -> Attention:
    """Full layers have their own head width and, with `attention_k_eq_v`, keys that serve as values."""
    same = config.bool("attention_k_eq_v", default=False)
    own = config.int("head_dim", default=256), config.int("num_key_value_heads")
    head_dim, n_kv_heads = full if kind.full else own
    bias = config.bool("attention_bias", default=False)
    attention = grouped_attention(
        width=width,
        n_heads=config.int("num_attention_heads"),
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=(head_dim, head_dim),
        window=None if kind.full else config.int("sliding_window", default=512),
    )
    dropped: tuple[str, ...] = ()
    if kind.shares_cache:
        dropped = ("self_attn.k_proj", "self_attn.v_proj", "self_attn.k_norm")
    elif same and kind.full:
        dropped = ("self_attn.v_proj",)
    kept = tuple(w for w in attention.weights if w.name.removesuffix(".bias") not in dropped)
    return replace(attention, weights=kept, shares_cache=kind.shares_cache)


def _vision(config: ConfigReader, text: int) -> tuple[Stack]:
    """Gemma 4's tower: gated feed-forward, four norms, clipped linears with their bounds as buffers."""
    width, n_heads = config.int("hidden_size"), config.int("num_attention_heads")
    config.expect("num_key_value_heads", n_heads)
    head_dim = config.int("head_dim", "global_head_dim")
    config.expect("global_head_dim", head_dim)
    config.expect("attention_bias", False)
    patch = config.int("patch_size", high=1024)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=head_dim,
        qk_norm=(head_dim, head_dim),
        causal=False,
    )
    mlp = gated_mlp(width=width, intermediate=config.int("intermediate_size"))
    clipped = clip_bounds(7) if config.bool("use_clipped_linears", default=False) else ()
    block = Block(sublayers=(attention, mlp), norms=norms(width, *FOUR_NORMS) + clipped)
    for unused in ("pooling_kernel_size", "default_output_length"):
        config.raw(unused)
    weights = (
        tensor(
            "position_embedding_table", 2, config.int("position_embedding_size"), width, part=Part.POSITION
        )
        + linear("patch_embedder.input_proj", 3 * patch * patch, width, Part.POSITION)
        + linear("embed_vision.embedding_projection", width, text, Part.PROJECTOR)
    )
    if config.bool("standardize", default=False):
        weights += buffers("standardize", 2 * width)
    return tower(width, [block] * config.layers(), weights, "vision_tower.encoder.layers")


FAMILIES: Final = (
    Family(
        model_types=("gemma4", "gemma4_text"),
        parse=parse_gemma4,
        architectures=("Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"),
    ),
)
