"""The experts of a layer as a grid, on *Model*."""

from __future__ import annotations

from math import ceil, sqrt

from calc import format as fmt
from calc.model import ModelSpec, Moe
from pages._axes import COLOURS, GREY, figure
from pages._drawing import Drawing

ASPECT = 4  # columns to rows
CELL_PX = 22


def experts_of(spec: ModelSpec) -> Moe | None:
    """The mixture with the most experts, or None in a dense model."""
    found = [s for stack in spec.stacks for _, s in stack.sublayers() if isinstance(s, Moe)]
    return max(found, key=lambda moe: moe.n_experts, default=None)


def experts_figure(moe: Moe) -> Drawing:
    """A square per routed expert; as many are filled as one token uses, and the shared ones stand apart below."""
    columns = ceil(sqrt(ASPECT * moe.n_experts))
    rows = -(-moe.n_experts // columns)
    made = figure(
        height=round(96 + CELL_PX * (rows + 1.6)),
        top=8,
        hovermode="closest",
        xaxis={"range": [-0.7, columns - 0.3], "visible": False},
        yaxis={"range": [rows + 0.9, -0.7], "visible": False, "scaleanchor": "x"},
        legend={"y": -0.02},
    )
    places = [(number % columns, number // columns) for number in range(moe.n_experts)]
    for name, chosen, colour in (
        ("used by one token", places[: moe.top_k], COLOURS["main"]),
        ("other routed experts", places[moe.top_k :], COLOURS["free"]),
        ("shared, used by every token", [(0, rows + 0.4)] if moe.shared_intermediate else [], COLOURS["kv"]),
    ):
        if chosen:
            made.add_scatter(
                name=name,
                x=[x for x, _ in chosen],
                y=[y for _, y in chosen],
                mode="markers",
                marker={"symbol": "square", "size": 15, "color": colour, "line": {"color": GREY, "width": 1}},
                hovertemplate=f"{name}<extra></extra>",
            )
    return made


def experts_finding(moe: Moe) -> str:
    """What the grid shows."""
    shared = " and a shared one" if moe.shared_intermediate else ""
    return (
        f"Each such layer has {fmt.count(moe.n_experts)} experts; a token uses {fmt.count(moe.top_k)} of them{shared}, others "
        "for every token, so that memory holds all and a single token reads few."
    )
