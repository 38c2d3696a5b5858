"""What a model is made of, layer by layer, in words and numbers: the block map of a `ModelSpec`."""

from __future__ import annotations

from dataclasses import dataclass

from calc.model import (
    Attention,
    Block,
    CompressedAttention,
    LatentAttention,
    Mixer,
    Mlp,
    ModelSpec,
    Moe,
    Stack,
    Sublayer,
    Weight,
)

NOTHING = "none"  # in place of a part that a layer lacks


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """`count` equal layers in a row, from `first` on (counted from 0), in the stack called `stack`.

    `token_mixing` and `feed_forward` say what the layer does; `parameters` is of one layer, as stored.
    """

    stack: str
    first: int
    count: int
    token_mixing: str
    feed_forward: str
    parameters: int
    weights: tuple[Weight, ...]
    shares_weights: bool

    @property
    def parts(self) -> tuple[str, ...]:
        """What the layer does, in order: one part alone where it mixes no tokens or feeds nothing forward."""
        parts = tuple(part for part in (self.token_mixing, self.feed_forward) if part != NOTHING)
        return parts or (NOTHING,)

    @property
    def last(self) -> int:
        return self.first + self.count - 1


def layer_groups(spec: ModelSpec) -> tuple[LayerGroup, ...]:
    """Every run of every stack, in order; stacks without layers have none."""
    return tuple(group for stack in spec.stacks for group in _groups(stack))


def _groups(stack: Stack) -> list[LayerGroup]:
    groups, first = [], 0
    for run in stack.runs:
        mixing, feed = _words(run.block)
        weights = tuple(run.block.weights())
        groups.append(
            LayerGroup(
                stack=str(stack.role),
                first=first,
                count=run.count,
                token_mixing=mixing,
                feed_forward=feed,
                parameters=sum(weight.elements for weight in weights if not weight.buffer),
                weights=weights,
                shares_weights=run.block.shares_weights,
            )
        )
        first += run.count
    return groups


def _words(block: Block) -> tuple[str, str]:
    mixing = [describe(s) for s in block.sublayers if not isinstance(s, Mlp | Moe)]
    feed = [describe(s) for s in block.sublayers if isinstance(s, Mlp | Moe)]
    return " + ".join(mixing) or NOTHING, " + ".join(feed) or NOTHING


def describe(sublayer: Sublayer) -> str:
    """A sublayer in the field's words, without its sizes."""
    match sublayer:
        case Attention():
            return _attention(sublayer)
        case LatentAttention():
            return "sparse latent attention" if sublayer.indexer else "latent attention"
        case CompressedAttention():
            return "compressed attention" if sublayer.ratio else f"sliding window {sublayer.window:,}"
        case Mixer():
            return str(sublayer.kind)
        case Moe():
            shared = " + shared" if sublayer.shared_intermediate else ""
            return f"{sublayer.n_experts} experts, top {sublayer.top_k}{shared}"
        case Mlp():
            return f"{'gated ' if sublayer.gated else ''}MLP {sublayer.intermediate:,}"


def _attention(attention: Attention) -> str:
    if attention.cross:
        kind = "cross attention"
    elif not attention.causal:
        kind = "encoder attention"
    elif attention.window:
        kind = f"sliding window {attention.window:,}"
    elif attention.chunk:
        kind = f"chunks of {attention.chunk:,}"
    elif attention.indexer:
        kind = "sparse attention"
    else:
        kind = "full attention"
    return f"{kind}, cache of an earlier layer" if attention.shares_cache else kind
