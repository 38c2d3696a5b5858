"""Common sublayers with their weights: grouped attention, feed-forward layers, mixtures of experts."""

from __future__ import annotations

from calc.architectures.tensors import Weights, linear, norm
from calc.model import Attention, Mlp, Part, Split

QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
GATE_UP_DOWN = ("gate_proj", "up_proj", "down_proj")


def grouped_attention(
    *,
    width: int,
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    qkv_bias: bool = False,
    out_bias: bool = False,
    qk_norm: tuple[int, int] | None = None,
    extra: Weights = (),
    prefix: str = "self_attn",
    names: tuple[str, str, str, str] = QKVO,
    window: int | None = None,
    chunk: int | None = None,
    causal: bool = True,
    cross: bool = False,
    kv_width: int | None = None,
) -> Attention:
    """Multi-head, grouped or multi-query attention.

    `qk_norm`: sizes of the query norm and the key norm (head_dim for a norm per head, all heads for one over them).
    `kv_width`: width of what keys and values are made from, where it is not `width` (cross-attention).
    """
    q, k, v, o = (f"{prefix}.{name}" for name in names)
    kv_in = width if kv_width is None else kv_width
    weights = (
        linear(q, width, n_heads * head_dim, Part.ATTENTION, Split.COLUMN, bias=qkv_bias)
        + linear(k, kv_in, n_kv_heads * head_dim, Part.ATTENTION, Split.KV_HEADS, bias=qkv_bias)
        + linear(v, kv_in, n_kv_heads * head_dim, Part.ATTENTION, Split.KV_HEADS, bias=qkv_bias)
        + linear(o, n_heads * head_dim, width, Part.ATTENTION, Split.ROW, bias=out_bias)
        + extra
    )
    if qk_norm is not None:
        weights += norm(f"{prefix}.q_norm", qk_norm[0]) + norm(f"{prefix}.k_norm", qk_norm[1])
    return Attention(
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        window=window,
        chunk=chunk,
        causal=causal,
        cross=cross,
        qk_norm=qk_norm is not None,
        weights=weights,
    )


def gated_mlp(
    *,
    width: int,
    intermediate: int,
    bias: bool = False,
    prefix: str = "mlp",
    names: tuple[str, str, str] = GATE_UP_DOWN,
) -> Mlp:
    """SwiGLU or GeGLU: gate, up and down."""
    gate, up, down = (f"{prefix}.{name}" for name in names)
    weights = (
        linear(gate, width, intermediate, Part.MLP, Split.COLUMN, bias=bias)
        + linear(up, width, intermediate, Part.MLP, Split.COLUMN, bias=bias)
        + linear(down, intermediate, width, Part.MLP, Split.ROW, bias=bias)
    )
    return Mlp(intermediate=intermediate, gated=True, weights=weights)


def plain_mlp(
    *,
    width: int,
    intermediate: int,
    bias: bool = False,
    prefix: str = "mlp",
    names: tuple[str, str] = ("up_proj", "down_proj"),
) -> Mlp:
    """Up and down with a pointwise activation between."""
    up, down = (f"{prefix}.{name}" for name in names)
    weights = linear(up, width, intermediate, Part.MLP, Split.COLUMN, bias=bias) + linear(
        down, intermediate, width, Part.MLP, Split.ROW, bias=bias
    )
    return Mlp(intermediate=intermediate, gated=False, weights=weights)
