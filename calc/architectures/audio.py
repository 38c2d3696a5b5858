"""Audio towers: Whisper's encoder as Qwen2-Audio uses it, and Gemma 4's conformer.

Sources: the audio classes of transformers 5, which build the published checkpoints.
"""

from __future__ import annotations

from calc.architectures.assembly import even_head_dim, runs
from calc.architectures.config_reader import ConfigReader
from calc.architectures.layers import grouped_attention, plain_mlp
from calc.architectures.tensors import Weights, linear, norm, norms, tensor, vector
from calc.architectures.towers import clip_bounds, positions, tower
from calc.model import Block, Mlp, Part, Role, Split, Stack


def whisper_block(config: ConfigReader, width: int, n_heads: int, intermediate: int) -> Block:
    """One encoder layer of Whisper: no bias on the keys."""
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=even_head_dim(config, width, n_heads),
        qkv_bias=True,
        key_bias=False,
        out_bias=True,
        names=("q_proj", "k_proj", "v_proj", "out_proj"),
        causal=False,
    )
    mlp = plain_mlp(width=width, intermediate=intermediate, bias=True, names=("fc1", "fc2"))
    return Block(
        sublayers=(attention, mlp), norms=norms(width, "self_attn_layer_norm", "final_layer_norm", bias=True)
    )


def whisper_front(mel_bins: int, width: int) -> Weights:
    """Two convolutions over time that turn a spectrogram into vectors."""
    part = Part.POSITION
    return (
        tensor("conv1", width, mel_bins, 3, part=part)
        + vector("conv1.bias", width, part)
        + tensor("conv2", width, width, 3, part=part)
        + vector("conv2.bias", width, part)
    )


def qwen2_audio_tower(config: ConfigReader, text: int) -> tuple[Stack, ...]:
    """Qwen2-Audio: Whisper's encoder and one matrix into the text width."""
    width = config.int("d_model")
    block = whisper_block(config, width, config.int("encoder_attention_heads"), config.int("encoder_ffn_dim"))
    weights = (
        whisper_front(config.int("num_mel_bins"), width)
        + positions(config.int("max_source_positions"), width)
        + norm("layer_norm", width, bias=True)
        + linear("multi_modal_projector.linear", width, text, Part.PROJECTOR, bias=True)
    )
    return tower(width, [block] * config.layers("encoder_layers"), weights, "audio_tower.layers", Role.AUDIO)


def gemma4_audio(config: ConfigReader, text: int) -> tuple[Stack, ...]:
    """Gemma 4's conformer: two half feed-forward layers, attention with relative keys, a light convolution."""
    width, n_heads = config.int("hidden_size"), config.int("num_attention_heads")
    head_dim = even_head_dim(config, width, n_heads)
    kernel = config.int("conv_kernel_size", default=5, high=1024)
    channels = config.ints("subsampling_conv_channels", length=2, low=1) or [128, 32]
    out = config.int("output_proj_dims")
    for unused in ("attention_chunk_size", "attention_context_left", "attention_context_right"):
        config.raw(unused)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=head_dim,
        extra=vector("self_attn.per_dim_scale", head_dim, Part.ATTENTION)
        + linear("self_attn.relative_k_proj", width, n_heads * head_dim, Part.ATTENTION, Split.COLUMN),
        names=("q_proj", "k_proj", "v_proj", "post"),
        causal=False,
    )
    halves = [plain_mlp(width=width, intermediate=4 * width, prefix=f"feed_forward{n}") for n in (1, 2)]
    convolution = Mlp(
        intermediate=width,
        weights=linear("lconv1d.linear_start", width, 2 * width, Part.MLP, Split.COLUMN)
        + linear("lconv1d.linear_end", width, width, Part.MLP, Split.ROW)
        + tensor("lconv1d.depthwise_conv1d", width, 1, kernel, part=Part.MLP),
    )
    names = (
        *(f"feed_forward{n}.{place}_layer_norm" for n in (1, 2) for place in ("pre", "post")),
        "lconv1d.pre_layer_norm",
        "lconv1d.conv_norm",
        "norm_pre_attn",
        "norm_post_attn",
        "norm_out",
    )
    clipped = clip_bounds(10) if config.bool("use_clipped_linears", default=True) else ()
    block = Block(
        sublayers=(halves[0], attention, convolution, halves[1]), norms=norms(width, *names) + clipped
    )
    part = Part.POSITION
    weights = (
        tensor("subsample_conv_projection.layer0.conv", channels[0], 1, 3, 3, part=part)
        + norm("subsample_conv_projection.layer0.norm", channels[0])
        + tensor("subsample_conv_projection.layer1.conv", channels[1], channels[0], 3, 3, part=part)
        + norm("subsample_conv_projection.layer1.norm", channels[1])
        + linear("subsample_conv_projection.input_proj_linear", channels[0] // 4 * channels[1], width, part)
        + linear("output_proj", width, out, Part.PROJECTOR, bias=True)
        + linear("embed_audio.embedding_projection", out, text, Part.PROJECTOR)
    )
    stack = Stack(
        role=Role.AUDIO,
        width=width,
        runs=runs([block] * config.layers()),
        weights=weights,
        path="audio_tower.layers",
    )
    return (stack,)
