"""Operators of one block's sublayers: which GEMMs an engine fuses, which cache is read, what goes over the links.

Projections are told apart by their shapes and splits, not by their names, so that every family reads alike: matrices that
read the block's width are fused into one GEMM (query, key, value; gate and up; a mixer's input), matrices that are split
along their inputs write back to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from calc.model import Attention, CompressedAttention, LatentAttention, Mixer, Mlp, Sublayer
from calc.operators.feed_forward import mlp_operators, moe_operators
from calc.operators.rows import Operator
from calc.operators.surroundings import Surroundings
from calc.operators.token_mixing import (
    attention_operators,
    compressed_attention_operators,
    latent_attention_operators,
    mixer_operators,
)


def sublayer_operators(sublayer: Sublayer, around: Surroundings) -> Iterator[Operator]:
    """All operators of one sublayer, its norm and its collective included."""
    yield around.elementwise("norm", 2.0 * around.width)  # the residual is added in the same kernel
    if isinstance(sublayer, Attention):
        yield from attention_operators(sublayer, around)
    elif isinstance(sublayer, LatentAttention):
        yield from latent_attention_operators(sublayer, around)
    elif isinstance(sublayer, CompressedAttention):
        yield from compressed_attention_operators(sublayer, around)
    elif isinstance(sublayer, Mixer):
        yield from mixer_operators(sublayer, around)
    elif isinstance(sublayer, Mlp):
        yield from mlp_operators(sublayer, around)
    else:
        yield from moe_operators(sublayer, around)
