"""Recurrent token mixers with their weights and their fixed state.

Convolution state is counted as kernel - 1 rows, which is what the mathematics needs; transformers keeps the full kernel.
Formats of the state: what transformers keeps after a forward pass of a 16-bit model: fp32 for the recurrent part of
Mamba, delta nets and RWKV, 16 bit for convolutions and for lightning attention.
"""

from __future__ import annotations

from calc.architectures.tensors import Weights, linear, norm, tensor, vector
from calc.errors import InputError
from calc.model import Mixer, MixerKind, Part, Split


def mamba1(
    *,
    width: int,
    inner: int,
    state: int,
    kernel: int,
    time_rank: int,
    conv_bias: bool,
    bias: bool,
    inner_norms: bool = False,
    prefix: str = "mamba",
) -> Mixer:
    """Mamba 1 (selective scan): state is (inner x state) and kernel - 1 rows of inner channels."""
    part = Part.MIXER
    weights = (
        linear(f"{prefix}.in_proj", width, 2 * inner, part, Split.COLUMN, bias=bias)
        + _convolution(f"{prefix}.conv1d", inner, kernel, bias=conv_bias)
        + linear(f"{prefix}.x_proj", inner, time_rank + 2 * state, part, Split.ROW)
        + linear(f"{prefix}.dt_proj", time_rank, inner, part, Split.COLUMN, bias=True)
        + tensor(f"{prefix}.A_log", inner, state, part=part, split=Split.COLUMN)
        + vector(f"{prefix}.D", inner, part, Split.COLUMN)
        + linear(f"{prefix}.out_proj", inner, width, part, Split.ROW, bias=bias)
    )
    if inner_norms:
        weights += norm(f"{prefix}.dt_layernorm", time_rank)
        weights += norm(f"{prefix}.b_layernorm", state) + norm(f"{prefix}.c_layernorm", state)
    return Mixer(
        kind=MixerKind.MAMBA1,
        conv_elements=(kernel - 1) * inner,
        recurrent_elements=inner * state,
        weights=weights,
    )


def mamba2(
    *,
    width: int,
    n_heads: int,
    head_dim: int,
    state: int,
    groups: int,
    kernel: int,
    conv_bias: bool,
    bias: bool,
    gated_norm: bool = True,
    out_bias: bool | None = None,
    stated_format: str | None = None,
    prefix: str = "mamba",
) -> Mixer:
    """Mamba 2 (state-space duality): state is heads x head_dim x state; the convolution also covers B and C."""
    inner = n_heads * head_dim
    channels = inner + 2 * groups * state
    if n_heads % groups:
        raise InputError("n_groups", groups, f"the {n_heads} Mamba heads must be a multiple of it")
    part = Part.MIXER
    weights = (
        linear(f"{prefix}.in_proj", width, inner + channels + n_heads, part, Split.COLUMN, bias=bias)
        + _convolution(f"{prefix}.conv1d", channels, kernel, bias=conv_bias)
        + vector(f"{prefix}.dt_bias", n_heads, part, Split.COLUMN)
        + vector(f"{prefix}.A_log", n_heads, part, Split.COLUMN)
        + vector(f"{prefix}.D", n_heads, part, Split.COLUMN)
        + linear(
            f"{prefix}.out_proj", inner, width, part, Split.ROW, bias=bias if out_bias is None else out_bias
        )
    )
    if gated_norm:
        weights += vector(f"{prefix}.norm", inner, Part.NORM, Split.COLUMN)
    return Mixer(
        kind=MixerKind.MAMBA2,
        conv_elements=(kernel - 1) * channels,
        recurrent_elements=inner * state,
        stated_format=stated_format,
        n_heads=n_heads,
        weights=weights,
    )


def gated_delta_net(
    *,
    width: int,
    n_key_heads: int,
    n_value_heads: int,
    key_dim: int,
    value_dim: int,
    kernel: int,
    fused: bool,
    stated_format: str | None = None,
    prefix: str = "linear_attn",
) -> Mixer:
    """Gated delta net (Qwen3-Next, Qwen3.5): a key x value matrix for each value head.

    `fused`: Qwen3-Next keeps q, k, v, z in one matrix and b, a in another; Qwen3.5 keeps four.
    """
    keys, values = n_key_heads * key_dim, n_value_heads * value_dim
    if n_value_heads % n_key_heads:
        raise InputError(
            "linear_num_key_heads",
            n_key_heads,
            f"linear_num_value_heads ({n_value_heads}) must be a multiple of it",
        )
    channels = 2 * keys + values
    part = Part.MIXER
    if fused:
        weights = linear(f"{prefix}.in_proj_qkvz", width, 2 * (keys + values), part, Split.COLUMN)
        weights += linear(f"{prefix}.in_proj_ba", width, 2 * n_value_heads, part, Split.COLUMN)
    else:
        weights = linear(f"{prefix}.in_proj_qkv", width, channels, part, Split.COLUMN)
        weights += linear(f"{prefix}.in_proj_z", width, values, part, Split.COLUMN)
        weights += linear(f"{prefix}.in_proj_b", width, n_value_heads, part, Split.COLUMN)
        weights += linear(f"{prefix}.in_proj_a", width, n_value_heads, part, Split.COLUMN)
    weights += (
        _convolution(f"{prefix}.conv1d", channels, kernel, bias=False)
        + vector(f"{prefix}.dt_bias", n_value_heads, part, Split.COLUMN)
        + vector(f"{prefix}.A_log", n_value_heads, part, Split.COLUMN)
        + norm(f"{prefix}.norm", value_dim)
        + linear(f"{prefix}.out_proj", values, width, part, Split.ROW)
    )
    return Mixer(
        kind=MixerKind.GATED_DELTA_NET,
        conv_elements=(kernel - 1) * channels,
        recurrent_elements=n_value_heads * key_dim * value_dim,
        stated_format=stated_format,
        n_heads=n_value_heads,
        weights=weights,
    )


def lightning_attention(*, width: int, n_heads: int, head_dim: int, prefix: str = "self_attn") -> Mixer:
    """Lightning attention (MiniMax): linear attention with a decay; a head_dim x head_dim matrix per head."""
    inner = n_heads * head_dim
    part = Part.MIXER
    weights = (
        linear(f"{prefix}.qkv_proj", width, 3 * inner, part, Split.COLUMN)
        + vector(f"{prefix}.norm", inner, Part.NORM, Split.COLUMN)
        + linear(f"{prefix}.output_gate", width, inner, part, Split.COLUMN)
        + linear(f"{prefix}.out_proj", inner, width, part, Split.ROW)
    )
    return Mixer(
        kind=MixerKind.LINEAR_ATTENTION,
        conv_elements=0,
        recurrent_elements=n_heads * head_dim * head_dim,
        recurrent_format="bf16",
        n_heads=n_heads,
        weights=weights,
    )


def short_convolution(*, width: int, kernel: int, bias: bool, prefix: str = "conv") -> Mixer:
    """LFM2's gated short convolution: kernel - 1 rows of the width and nothing else."""
    part = Part.MIXER
    weights = (
        linear(f"{prefix}.in_proj", width, 3 * width, part, Split.COLUMN, bias=bias)
        + _convolution(f"{prefix}.conv", width, kernel, bias=bias)
        + linear(f"{prefix}.out_proj", width, width, part, Split.ROW, bias=bias)
    )
    return Mixer(
        kind=MixerKind.SHORT_CONVOLUTION,
        conv_elements=(kernel - 1) * width,
        recurrent_elements=0,
        weights=weights,
    )


def _convolution(name: str, channels: int, kernel: int, *, bias: bool) -> Weights:
    """A depthwise convolution over time."""
    weights = tensor(name, channels, 1, kernel, part=Part.MIXER, split=Split.COLUMN)
    return weights + vector(f"{name}.bias", channels, Part.MIXER, Split.COLUMN) if bias else weights
