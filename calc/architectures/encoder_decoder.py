"""Encoder-decoders: BART, Whisper and T5. The decoder caches its own tokens, and once the encoder's for cross-attention.

Source: modelling code in transformers 5.
"""

from __future__ import annotations

from typing import Final

from calc.architectures.assembly import architecture, even_head_dim, model_dtype, runs
from calc.architectures.audio import whisper_block, whisper_front
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import gated_mlp, grouped_attention, plain_mlp
from calc.architectures.tensors import Weights, embedding, lm_head, norm, norms, tensor
from calc.architectures.towers import positions
from calc.errors import UnsupportedArchitecture
from calc.model import Attention, Block, ModelSpec, Part, Role, Split, Stack, Weight

OUT: Final = ("q_proj", "k_proj", "v_proj", "out_proj")
POSITION_OFFSET: Final = 2  # BartLearnedPositionalEmbedding keeps two unused rows in front


def _spec(
    config: ConfigReader,
    default: str,
    width: int,
    stacks: tuple[Stack, ...],
    *,
    longest: int | None,
    generation: str,
    name: str,
    tied: bool = True,
) -> ModelSpec:
    """The spec of an encoder-decoder with one shared embedding."""
    vocab = config.int("vocab_size")
    class_name = architecture(config, default)
    if not class_name.endswith((generation, "Model")):
        raise UnsupportedArchitecture(
            "architectures", class_name, f"known are {generation} and the plain Model"
        )
    generates = class_name.endswith(generation)
    return ModelSpec(
        id=config.model_id,
        architecture=class_name,
        model_type=config.str("model_type"),
        vocab_size=vocab,
        width=width,
        embeddings=embedding(name, vocab, width, tied=generates and tied),
        lm_head=lm_head("lm_head", vocab, width) if generates and not tied else (),
        tied=generates and tied,
        stacks=stacks,
        max_positions=longest,
        dtype=model_dtype(config),
    )


def parse_bart(config: ConfigReader) -> ModelSpec:
    """BART: learned positions with two spare rows, norms behind each sublayer, one shared embedding."""
    width = config.int("d_model")
    for field in (
        "normalize_before",
        "add_final_layer_norm",
        "add_bias_logits",
        "static_position_embeddings",
    ):
        config.expect(field, False)
    config.expect("normalize_embedding", True)
    config.expect("tie_word_embeddings", True)
    longest = config.int("max_position_embeddings")
    table = positions(longest + POSITION_OFFSET, width) + norm("layernorm_embedding", width, bias=True)
    encoder = _bart_block(config, width, "encoder", cross=False)
    decoder = _bart_block(config, width, "decoder", cross=True)
    class_name = architecture(config, "BartForConditionalGeneration")
    bias: Weights = ()
    if class_name.endswith("ForConditionalGeneration"):
        shape = (1, config.int("vocab_size"))
        bias = (Weight(name="final_logits_bias", shape=shape, part=Part.LM_HEAD, buffer=True),)
    stacks = (
        Stack(
            role=Role.ENCODER,
            width=width,
            runs=runs([encoder] * config.layers("encoder_layers")),
            weights=table,
            path="model.encoder.layers",
        ),
        Stack(
            role=Role.DECODER,
            width=width,
            runs=runs([decoder] * config.layers("decoder_layers")),
            weights=table + bias,
            path="model.decoder.layers",
        ),
    )
    config.raw("num_hidden_layers")
    return _spec(
        config,
        "BartForConditionalGeneration",
        width,
        stacks,
        longest=longest,
        generation="ForConditionalGeneration",
        name="model.shared",
    )


def _bart_block(config: ConfigReader, width: int, side: str, *, cross: bool) -> Block:
    n_heads = config.int(f"{side}_attention_heads")
    own = _biased(config, width, n_heads, causal=cross)
    mlp = plain_mlp(
        width=width, intermediate=config.int(f"{side}_ffn_dim"), bias=True, prefix="", names=("fc1", "fc2")
    )
    names = ["self_attn_layer_norm", "final_layer_norm"]
    if not cross:
        return Block(sublayers=(own, mlp), norms=norms(width, *names, bias=True))
    seeing = _biased(config, width, n_heads, cross=True)
    return Block(
        sublayers=(own, seeing, mlp), norms=norms(width, *names, "encoder_attn_layer_norm", bias=True)
    )


def _biased(
    config: ConfigReader,
    width: int,
    n_heads: int,
    *,
    causal: bool = True,
    cross: bool = False,
    key_bias: bool = True,
) -> Attention:
    return grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=even_head_dim(config, width, n_heads),
        qkv_bias=True,
        key_bias=key_bias,
        out_bias=True,
        names=OUT,
        prefix="encoder_attn" if cross else "self_attn",
        causal=causal,
        cross=cross,
    )


def parse_whisper(config: ConfigReader) -> ModelSpec:
    """Whisper: convolutions in front, no bias on keys, learned positions on both sides, a tied head."""
    width = config.int("d_model")
    config.expect("tie_word_embeddings", True)
    n_heads = config.int("decoder_attention_heads")
    encoder = whisper_block(
        config, width, config.int("encoder_attention_heads"), config.int("encoder_ffn_dim")
    )
    mlp = plain_mlp(
        width=width, intermediate=config.int("decoder_ffn_dim"), bias=True, prefix="", names=("fc1", "fc2")
    )
    decoder = Block(
        sublayers=(
            _biased(config, width, n_heads, key_bias=False),
            _biased(config, width, n_heads, cross=True, key_bias=False),
            mlp,
        ),
        norms=norms(width, "self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm", bias=True),
    )
    longest = config.int("max_target_positions")
    front = whisper_front(config.int("num_mel_bins"), width) + positions(
        config.int("max_source_positions"), width
    )
    stacks = (
        Stack(
            role=Role.ENCODER,
            width=width,
            runs=runs([encoder] * config.layers("encoder_layers")),
            weights=front + norm("layer_norm", width, bias=True),
            path="model.encoder.layers",
        ),
        Stack(
            role=Role.DECODER,
            width=width,
            runs=runs([decoder] * config.layers("decoder_layers")),
            weights=positions(longest, width) + norm("layer_norm", width, bias=True),
            path="model.decoder.layers",
        ),
    )
    config.raw("num_hidden_layers")
    return _spec(
        config,
        "WhisperForConditionalGeneration",
        width,
        stacks,
        longest=longest,
        generation="ForConditionalGeneration",
        name="model.decoder.embed_tokens",
    )


def parse_t5(config: ConfigReader) -> ModelSpec:
    """T5: relative positions as one table per stack, RMS norms, no biases; `gated-` feed-forward in version 1.1.

    A head that `tie_word_embeddings` false unties (version 1.1 stores one) is counted.
    """
    width, n_heads = config.int("d_model"), config.int("num_heads")
    head_dim = config.int("d_kv", default=64)
    kind = config.str("feed_forward_proj", default="relu")
    gated = kind.startswith("gated-")
    if kind.count("-") > (1 if gated else 0):
        raise config.unsupported("feed_forward_proj", "it must be an activation, or gated-<activation>")
    intermediate = config.int("d_ff")
    mlp = (
        gated_mlp(width=width, intermediate=intermediate, names=("wi_0", "wi_1", "wo"))
        if gated
        else plain_mlp(width=width, intermediate=intermediate, names=("wi", "wo"))
    )
    config.raw("relative_attention_max_distance")
    table = tensor(
        "relative_attention_bias",
        config.int("relative_attention_num_buckets", default=32),
        n_heads,
        part=Part.POSITION,
        split=Split.REPLICATED,
    )
    encoder_layers = config.layers("num_layers", "num_hidden_layers")
    decoder_layers = config.int("num_decoder_layers", default=encoder_layers, high=1024)
    own, seeing, reading = (
        _t5_attention(width, n_heads, head_dim, causal=causal, cross=cross)
        for causal, cross in ((True, False), (True, True), (False, False))
    )
    encoder = Block(sublayers=(reading, mlp), norms=norms(width, "layer.0.layer_norm", "layer.1.layer_norm"))
    decoder = Block(
        sublayers=(own, seeing, mlp),
        norms=norms(width, "layer.0.layer_norm", "layer.1.layer_norm", "layer.2.layer_norm"),
    )
    stacks = tuple(
        Stack(
            role=role,
            width=width,
            runs=runs([block] * layers),
            weights=table + norm("final_layer_norm", width),
            path=f"{role.value}.block",
        )
        for role, block, layers in (
            (Role.ENCODER, encoder, encoder_layers),
            (Role.DECODER, decoder, decoder_layers),
        )
    )
    return _spec(
        config,
        "T5ForConditionalGeneration",
        width,
        stacks,
        longest=config.optional_int("n_positions"),
        generation="ForConditionalGeneration",
        name="shared",
        tied=config.bool("tie_word_embeddings", default=True),
    )


def _t5_attention(width: int, n_heads: int, head_dim: int, *, causal: bool, cross: bool) -> Attention:
    return grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=head_dim,
        prefix="layer.1.EncDecAttention" if cross else "layer.0.SelfAttention",
        names=("q", "k", "v", "o"),
        causal=causal,
        cross=cross,
    )


FAMILIES: Final = (
    Family(
        model_types=("bart",), parse=parse_bart, architectures=("BartForConditionalGeneration", "BartModel")
    ),
    Family(model_types=("whisper",), parse=parse_whisper, architectures=("WhisperForConditionalGeneration",)),
    Family(
        model_types=("t5", "mt5"),
        parse=parse_t5,
        architectures=("T5ForConditionalGeneration", "MT5ForConditionalGeneration"),
    ),
)
