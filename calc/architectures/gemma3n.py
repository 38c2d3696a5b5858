"""Gemma 3n, text: per-layer embeddings, layers that read an earlier cache, several predicted streams (AltUp), LAuReL.

The published models also carry a MobileNet-V5 tower, which is not read: such a config is refused by name.

Source: modelling code in transformers 5.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from calc.architectures.assembly import causal_lm, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.gemma import FOUR_NORMS
from calc.architectures.layers import gated_mlp, grouped_attention
from calc.architectures.tensors import Weights, linear, norm, norms, tensor, vector
from calc.architectures.windows import FULL, SLIDING
from calc.model import Attention, Block, ModelSpec, Part, Split, Weight


def parse_gemma3n(config: ConfigReader) -> ModelSpec:
    """Gemma 3n's language model."""
    if config.section("vision_config") is not None or config.section("audio_config") is not None:
        raise config.unsupported(
            "vision_config",
            "the MobileNet-V5 and audio towers of Gemma 3n are not read; paste the text_config alone",
        )
    width, layers = config.int("hidden_size"), config.layers()
    kinds = config.words("layer_types", allowed=(FULL, SLIDING), length=layers)
    kinds = kinds or [SLIDING if (layer + 1) % 5 else FULL for layer in range(layers)]
    widths = config.per_layer("intermediate_size", layers=layers)
    first = layers - config.int("num_kv_shared_layers", default=15, low=0, high=layers)
    streams = config.int("altup_num_inputs", default=4, high=64)
    per_layer = config.int("hidden_size_per_layer_input", default=256)
    config.expect("altup_correct_scale", True)
    built: dict[tuple[str, int, bool], Block] = {}
    blocks = []
    for index, (kind, intermediate) in enumerate(zip(kinds, widths, strict=True)):
        key = (kind, intermediate, index >= first)
        if key not in built:
            attention = _attention(config, width, full=kind == FULL, shares_cache=index >= first)
            mlp = gated_mlp(width=width, intermediate=intermediate)
            extra = _streams(width, streams) + _residual(config, width) + _per_layer(width, per_layer)
            built[key] = Block(sublayers=(attention, mlp), norms=norms(width, *FOUR_NORMS) + extra)
        blocks.append(built[key])
    rows = config.int("vocab_size_per_layer_input", default=262144)
    shape = (rows, layers * per_layer)
    table = (Weight(name="embed_tokens_per_layer", shape=shape, part=Part.EMBEDDING, split=Split.VOCAB),)
    merging = tuple(
        weight
        for name in ("altup_projections", "altup_unembed_projections")
        for number in range(streams - 1)
        for weight in linear(f"{name}.{number}", width, width, Part.PROJECTOR)
    )
    return causal_lm(
        config,
        default_architecture="Gemma3nForCausalLM",
        width=width,
        blocks=blocks,
        final=norm("model.norm", width)
        + table
        + linear("per_layer_model_projection", width, layers * per_layer, Part.PROJECTOR)
        + norm("per_layer_projection_norm", per_layer)
        + merging,
        tied_default=True,
        max_positions=max_positions(config),
    )


def _streams(width: int, streams: int) -> Weights:
    """AltUp: predicts and corrects the other streams from the active one."""
    part = Part.MLP
    return (
        vector("altup.correct_output_scale", width, part)
        + tensor("altup.correction_coefs", streams, streams, part=part)
        + tensor("altup.prediction_coefs", streams * streams, streams, part=part)
        + tensor("altup.modality_router", streams, width, part=part)
        + norm("altup.router_norm", width)
    )


def _residual(config: ConfigReader, width: int) -> Weights:
    """LAuReL: a low-rank path beside attention."""
    rank = config.int("laurel_rank", default=64)
    return (
        linear("laurel.linear_left", width, rank, Part.MLP)
        + linear("laurel.linear_right", rank, width, Part.MLP)
        + norm("laurel.post_laurel_norm", width)
    )


def _per_layer(width: int, per_layer: int) -> Weights:
    return (
        linear("per_layer_input_gate", width, per_layer, Part.MLP)
        + linear("per_layer_projection", per_layer, width, Part.MLP)
        + norm("post_per_layer_input_norm", width)
    )


def _attention(config: ConfigReader, width: int, *, full: bool, shares_cache: bool) -> Attention:
    head_dim = config.int("head_dim", default=256)
    bias = config.bool("attention_bias", default=False)
    attention = grouped_attention(
        width=width,
        n_heads=config.int("num_attention_heads"),
        n_kv_heads=config.int("num_key_value_heads"),
        head_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=(head_dim, head_dim),
        window=None if full else config.int("sliding_window", default=512),
    )
    if not shares_cache:
        return attention
    dropped = ("self_attn.k_proj", "self_attn.v_proj", "self_attn.k_norm")
    kept = tuple(w for w in attention.weights if w.name.removesuffix(".bias") not in dropped)
    return replace(attention, weights=kept, shares_cache=True)


FAMILIES: Final = (
    Family(
        model_types=("gemma3n", "gemma3n_text"),
        parse=parse_gemma3n,
        architectures=("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"),
    ),
)
