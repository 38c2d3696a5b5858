"""The block grid of *Paged KV* and what it says."""

from __future__ import annotations

import plotly.graph_objects as go

from calc import format as fmt
from calc.paging_story import BLOCK_SIZE, Cell, Pool
from pages._axes import COLOURS, GREY, KINDS, figure

COLUMNS = 8
GAP = 0.12


def grid_figure(pool: Pool) -> go.Figure:
    """A square per block; its filled part is real tokens, its colour the request, a number how many share it."""
    rows = -(-len(pool.cells) // COLUMNS)
    made = figure(height=60 + 46 * rows, legend=False, top=8)
    made.update_layout(
        hovermode="closest",
        xaxis={"range": [-0.1, COLUMNS + 0.1], "visible": False},
        yaxis={"range": [rows + 0.1, -0.1], "visible": False, "scaleanchor": "x"},
    )
    for number, cell in enumerate(pool.cells):
        _draw_cell(made, number % COLUMNS, number // COLUMNS, cell)
    made.add_scatter(
        x=[n % COLUMNS + 0.5 for n in range(len(pool.cells))],
        y=[n // COLUMNS + 0.5 for n in range(len(pool.cells))],
        mode="markers+text",
        marker={"size": 28, "symbol": "square", "color": "rgba(0,0,0,0)"},
        text=[str(len(cell.owners)) if len(cell.owners) > 1 else "" for cell in pool.cells],
        textfont={"size": 15, "color": "#FFFFFF"},
        customdata=[_words(n, cell) for n, cell in enumerate(pool.cells)],
        hovertemplate="%{customdata}<extra></extra>",
    )
    return made


def _draw_cell(made: go.Figure, x: int, y: int, cell: Cell) -> None:
    left, right, top, bottom = x + GAP / 2, x + 1 - GAP / 2, y + GAP / 2, y + 1 - GAP / 2
    made.add_shape(
        type="rect",
        x0=left,
        x1=right,
        y0=top,
        y1=bottom,
        line={"color": GREY, "width": 1, "dash": "solid" if cell.owners else "dot"},
        fillcolor=COLOURS["free"] if cell.owners else "rgba(0,0,0,0)",
    )
    if cell.owners and cell.filled:
        made.add_shape(
            type="rect",
            x0=left,
            x1=right,
            y0=bottom - (bottom - top) * cell.filled / BLOCK_SIZE,
            y1=bottom,
            line={"width": 0},
            fillcolor=KINDS[cell.owners[0] % len(KINDS)],
        )


def _words(number: int, cell: Cell) -> str:
    if not cell.owners:
        return f"block {number}: free{', contents still usable' if cell.cached else ''}"
    who = ", ".join(str(owner + 1) for owner in cell.owners)
    return f"block {number}: request {who}; {cell.filled} of {BLOCK_SIZE} slots hold tokens"


def grid_finding(pool: Pool) -> str:
    """What a grid shows."""
    held = sum(1 for cell in pool.cells if cell.owners)
    shared = sum(1 for cell in pool.cells if len(cell.owners) > 1)
    return (
        f"The {pool.name} cache: {fmt.plural(pool.requests, 'request')} hold {held} of {len(pool.cells)} blocks, "
        f"{shared} of them shared; {fmt.count(pool.wasted_slots)} token slots are held but empty."
    )
