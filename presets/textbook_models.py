"""The made-up models of the worked examples: they state a total and a cache, and nothing else.

Their weights are one tensor of `Part.UNSTATED`: enough for the textbook's closed forms, and the operator table can say
that it cannot split them.
"""

from __future__ import annotations

from typing import Final

from calc.model import Attention, Block, ModelSpec, Part, Role, Run, Stack, Weight


def _stated(
    model_id: str, *, parameters: int, layers: int, n_heads: int, n_kv_heads: int, head_dim: int
) -> ModelSpec:
    block = Block(sublayers=(Attention(n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim),))
    weights = (Weight(name="unstated", shape=(parameters,), part=Part.UNSTATED),)
    width = n_heads * head_dim
    return ModelSpec(
        id=model_id,
        architecture="Textbook",
        model_type="textbook",
        vocab_size=0,
        width=width,
        embeddings=(),
        lm_head=(),
        tied=False,
        stacks=(
            Stack(role=Role.DECODER, width=width, runs=(Run(count=layers, block=block),), weights=weights),
        ),
        max_positions=None,
    )


TEXTBOOK_MODELS: Final = {
    "textbook-13b": _stated(
        "textbook-13b", parameters=13_000_000_000, layers=40, n_heads=40, n_kv_heads=40, head_dim=128
    ),
    "example-8b": _stated(
        "example-8b", parameters=8_000_000_000, layers=32, n_heads=32, n_kv_heads=8, head_dim=128
    ),
}
