"""Common sublayers with their weights: grouped attention, feed-forward layers, mixtures of experts."""

from __future__ import annotations

from calc.architectures.tensors import Weights, linear, norm, tensor
from calc.model import Attention, Mlp, Moe, Part, Split, Weight

QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
GATE_UP_DOWN = ("gate_proj", "up_proj", "down_proj")


def grouped_attention(
    *,
    width: int,
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    qkv_bias: bool = False,
    key_bias: bool | None = None,
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
    `key_bias`: where it differs from that of queries and values (Whisper has none). `kv_width`: width of what keys and values are made from, where it is not `width` (cross-attention).
    """
    q, k, v, o = (f"{prefix}.{name}" for name in names)
    kv_in = width if kv_width is None else kv_width
    weights = (
        linear(q, width, n_heads * head_dim, Part.ATTENTION, Split.COLUMN, bias=qkv_bias)
        + linear(
            k,
            kv_in,
            n_kv_heads * head_dim,
            Part.ATTENTION,
            Split.KV_HEADS,
            bias=qkv_bias if key_bias is None else key_bias,
        )
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


def mixture(
    *,
    width: int,
    n_experts: int,
    top_k: int,
    intermediate: int,
    shared_intermediate: int = 0,
    shared_gate: bool = False,
    shared_bias: bool = False,
    expert_bias: bool = False,
    router_bias: bool = False,
    correction: str = "",
    gated: bool = True,
    expert_width: int | None = None,
    extra: Weights = (),
    prefix: str = "mlp",
    router: str = "gate",
    names: tuple[str, str, str] = GATE_UP_DOWN,
    shared: str = "shared_experts",
) -> Moe:
    """A mixture of experts: router, routed experts stacked (experts, out, in), shared experts as one wide one.

    `correction`: a score correction per expert, kept as a "parameter" or as a "buffer" of the checkpoint.
    `expert_width`: width inside the experts where they work in a narrower (latent) space.
    """
    inner = width if expert_width is None else expert_width
    gate, up, down = (f"{prefix}.experts.{name}" for name in names)
    weights: Weights = linear(f"{prefix}.{router}", width, n_experts, Part.ROUTER, bias=router_bias)
    if correction:
        weights += (
            Weight(
                name=f"{prefix}.{router}.e_score_correction_bias",
                shape=(n_experts,),
                part=Part.ROUTER,
                stored="fp32",
                buffer=correction == "buffer",
            ),
        )
    for name, n_in, n_out in (
        *(((gate, inner, intermediate),) if gated else ()),
        (up, inner, intermediate),
        (down, intermediate, inner),
    ):
        weights += tensor(name, n_experts, n_out, n_in, part=Part.EXPERTS, split=Split.EXPERT)
        if expert_bias:
            weights += tensor(f"{name}.bias", n_experts, n_out, part=Part.EXPERTS, split=Split.EXPERT)
    if shared_intermediate:
        weights += _shared_expert(
            width, shared_intermediate, f"{prefix}.{shared}", names, gated=gated, bias=shared_bias
        )
        if shared_gate:
            weights += linear(f"{prefix}.{shared}_gate", width, 1, Part.ROUTER)
    return Moe(
        n_experts=n_experts,
        top_k=top_k,
        expert_intermediate=intermediate,
        shared_intermediate=shared_intermediate,
        gated=gated,
        weights=weights + extra,
    )


def _shared_expert(
    width: int, intermediate: int, prefix: str, names: tuple[str, str, str], *, gated: bool, bias: bool
) -> Weights:
    gate, up, down = (f"{prefix}.{name}" for name in names)
    part = Part.SHARED_EXPERTS
    weights = linear(gate, width, intermediate, part, Split.COLUMN, bias=bias) if gated else ()
    weights += linear(up, width, intermediate, part, Split.COLUMN, bias=bias)
    return weights + linear(down, intermediate, width, part, Split.ROW, bias=bias)
