"""Multi-token-prediction layers: one more block behind two norms and a projection of (embedding, hidden) to the width.

transformers does not build them; checkpoints carry them, and some store the embedding and the head again.
Source: DeepSeek-V3 technical report, section 2.2, and the tensor names of its checkpoint.
"""

from __future__ import annotations

from calc.architectures.assembly import runs
from calc.architectures.config_reader import ConfigReader
from calc.architectures.recipe import Recipe, dense_attention, dense_norms
from calc.architectures.tensors import Weights, embedding, linear, lm_head, norms
from calc.model import Block, Mlp, Moe, Part, Role, Stack

DRAFT_FIELDS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")


def draft_layers(config: ConfigReader) -> int:
    """How many prediction layers the config names."""
    for field in DRAFT_FIELDS:
        if config.has(field):
            return config.int(field, low=0, high=64)
    return 0


def mtp_stack(
    config: ConfigReader, block: Block, width: int, *, copies_embedding: bool, path: str = "model.layers"
) -> tuple[Stack, ...]:
    """The stack of `block` prediction layers that the config names; nothing where it names none."""
    count = draft_layers(config)
    if count == 0:
        return ()
    extra: Weights = ()
    for _ in range(count):
        extra += norms(width, "enorm", "hnorm", "shared_head.norm")
        extra += linear("eh_proj", 2 * width, width, Part.PROJECTOR)
        if copies_embedding:
            vocab = config.int("vocab_size")
            extra += embedding("embed_tokens", vocab, width) + lm_head("shared_head.head", vocab, width)
    return (Stack(role=Role.MTP, width=width, runs=runs([block] * count), weights=extra, path=path),)


def draft_stack(
    config: ConfigReader, recipe: Recipe, feed_forward: Mlp | Moe, width: int
) -> tuple[Stack, ...]:
    """Prediction layers made of the family's own last block, which share embedding and head with the model."""
    if draft_layers(config) == 0:
        return ()
    attention = dense_attention(config, recipe, width, None)
    block = Block(sublayers=(attention, feed_forward), norms=dense_norms(config, recipe, width))
    return mtp_stack(config, block, width, copies_embedding=False)
