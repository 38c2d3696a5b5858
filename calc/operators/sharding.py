"""What one GPU of a replica holds: degrees of attention, dense and expert parallelism, and the share of each weight."""

from __future__ import annotations

from dataclasses import dataclass

from calc.errors import InputError
from calc.layout import Layout
from calc.model import Split, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Ranks over which each part of a layer is spread.

    attention: tensor-parallel ranks of one attention group; dense: of dense feed-forward layers and the output head;
    experts: GPUs over which all routed experts of a layer are spread, `expert_parallel` of them by whole experts.
    token_ranks: attention groups whose tokens meet in one expert layer.
    """

    attention: int
    dense: int
    experts: int
    expert_parallel: int
    token_ranks: int
    nodes: int

    @classmethod
    def of(cls, layout: Layout) -> Degrees:
        """Degrees of a layout. With ep above tp, data-parallel engines share their experts (wide expert parallelism)."""
        attention = max(1, layout.tp // layout.attention_dp)
        experts = max(layout.tp, layout.ep)
        if layout.ep and experts % layout.ep:
            raise InputError("ep", layout.ep, f"it must divide tp ({layout.tp}) or be a multiple of it")
        wide = experts // layout.tp if layout.ep > layout.tp else 1
        return cls(
            attention=attention,
            dense=layout.tp,
            experts=experts,
            expert_parallel=max(1, layout.ep),
            token_ranks=layout.attention_dp * wide,
            nodes=layout.nodes,
        )


def rank_share(weight: Weight, *, ranks: int, n_kv_heads: int = 1) -> float:
    """Share of a weight that one of `ranks` tensor-parallel ranks holds and reads."""
    if weight.split is Split.REPLICATED:
        return 1.0
    if weight.split is Split.KV_HEADS:
        return max(1.0 / ranks, 1.0 / n_kv_heads)
    return 1.0 / ranks
