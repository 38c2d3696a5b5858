"""The few facts of a `ModelSpec` that engine ledgers ask for again and again, gathered once per spec.

A spec can hold hundreds of runs; its different blocks are few. `shape_of` lists the different blocks and which layer is
which, so that a ledger visits each kind of layer once. Results are kept for the specs used last.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from calc.errors import InputError
from calc.memory.engines.vision import VisionShape, vision_shape
from calc.model import (
    Attention,
    Block,
    CompressedAttention,
    LatentAttention,
    Mixer,
    Mlp,
    ModelSpec,
    Moe,
    Role,
)

KEPT_SPECS = 32


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Widths and layer order of a decoder. `blocks` are the different blocks, `order` says which one each layer is."""

    spec: ModelSpec
    hidden: int
    vocab_size: int
    intermediate: int  # widest dense feed-forward layer, shared experts included; 0 where there is none
    mlp_copies: (
        int  # activations of that width alive at once: gate, up and their product, or two without a gate
    )
    expert_intermediate: int
    n_experts: int
    top_k: int
    n_heads: int
    head_dim: int
    blocks: tuple[Block, ...]
    order: tuple[int, ...]
    drafts: tuple[tuple[int, Block], ...]
    vision: VisionShape | None

    @property
    def n_layers(self) -> int:
        return len(self.order)

    @cached_property
    def is_moe(self) -> bool:
        return self.top_k > 0

    @cached_property
    def recurrent(self) -> bool:
        """Whether any layer keeps a recurrent state."""
        return any(isinstance(s, Mixer) for block in self.blocks for s in block.sublayers)

    @cached_property
    def compressed(self) -> bool:
        """Whether any layer compresses its cache as it grows (DeepSeek-V4)."""
        return any(isinstance(s, CompressedAttention) for block in self.blocks for s in block.sublayers)

    def stage_blocks(self, first: int, last: int) -> list[tuple[int, Block]]:
        """(count, block) of the layers from `first` up to, not including, `last`."""
        return [(count, self.blocks[index]) for index, count in Counter(self.order[first:last]).items()]


_kept: dict[int, ModelShape] = {}


def shape_of(spec: ModelSpec) -> ModelShape:
    """The shape of a spec; the same object for the same spec object."""
    found = _kept.get(id(spec))
    if found is not None and found.spec is spec:
        return found
    shape = _read_shape(spec)
    if len(_kept) >= KEPT_SPECS:
        _kept.pop(next(iter(_kept)), None)
    _kept[id(spec)] = shape
    return shape


def _read_shape(spec: ModelSpec) -> ModelShape:
    decoder = spec.decoder
    if decoder is None:
        raise InputError("model", spec.id, "it must generate tokens; encoders and rerankers keep no KV cache")
    blocks: list[Block] = []
    order: list[int] = []
    for run in decoder.runs:
        for known, block in enumerate(blocks):
            if block is run.block or block == run.block:
                index = known
                break
        else:
            index = len(blocks)
            blocks.append(run.block)
        order += [index] * run.count
    sublayers = [sublayer for block in blocks for sublayer in block.sublayers]
    mlps = [s for s in sublayers if isinstance(s, Mlp)]
    moes = [s for s in sublayers if isinstance(s, Moe)]
    attentions = [s for s in sublayers if isinstance(s, Attention | LatentAttention)]
    mixers = [s for s in sublayers if isinstance(s, Mixer)]
    shared = [m.shared_intermediate for m in moes]
    widest = max([m.intermediate for m in mlps] + shared, default=0)
    gated = any(m.gated for m in mlps) or any(m.gated for m in moes)
    towers = spec.stacks_of(Role.VISION)
    return ModelShape(
        spec=spec,
        hidden=decoder.width,
        vocab_size=spec.vocab_size,
        intermediate=widest,
        mlp_copies=3 if gated else 2,
        expert_intermediate=max((m.expert_intermediate for m in moes), default=0),
        n_experts=max((m.n_experts for m in moes), default=0),
        top_k=max((m.top_k for m in moes), default=0),
        n_heads=max([a.n_heads for a in attentions] + [m.n_heads for m in mixers], default=1),
        head_dim=max((a.head_dim for a in attentions if isinstance(a, Attention)), default=0),
        blocks=tuple(blocks),
        order=tuple(order),
        drafts=tuple((run.count, run.block) for stack in spec.stacks_of(Role.MTP) for run in stack.runs),
        vision=vision_shape(spec.model_type, towers[0]) if towers else None,
    )
