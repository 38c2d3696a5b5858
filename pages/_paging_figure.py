"""The block grid of *Paged KV* and what it says."""

from __future__ import annotations

from calc import format as fmt
from calc.paging_story import BLOCK_SIZE, Cell, Pool
from pages._axes import COLOURS, GREY, KINDS, figure
from pages._drawing import Drawing

FEW_COLUMNS, MANY_COLUMNS = 8, 24
FEW_BLOCKS = 64
SIZE = 0.88
WIDTH_PX = 330  # of a grid beside two others


def grid_figure(pool: Pool) -> Drawing:
    """A square per block: its filled part is real tokens, its colour the request, a number how many share it.

    Blocks that the last action touched have a thick edge.
    """
    columns = FEW_COLUMNS if len(pool.cells) <= FEW_BLOCKS else MANY_COLUMNS
    rows = -(-len(pool.cells) // columns)
    made = figure(
        height=round(30 + WIDTH_PX * rows / columns),
        showlegend=False,
        top=4,
        hovermode="closest",
        barmode="overlay",
        bargap=0,
        xaxis={"range": [-0.1, columns + 0.1], "visible": False, "fixedrange": True},
        yaxis={"range": [-rows - 0.1, 0.1], "visible": False, "fixedrange": True},
    )
    places = [(n % columns + 0.5, -(n // columns) - 1 + (1 - SIZE) / 2) for n in range(len(pool.cells))]
    made.add_bar(
        name="blocks",
        x=[x for x, _ in places],
        y=[SIZE] * len(places),
        base=[y for _, y in places],
        width=SIZE,
        marker={
            "color": [COLOURS["free"] if cell.owners else "rgba(0,0,0,0)" for cell in pool.cells],
            "line": {
                "color": [COLOURS["target"] if cell.touched else GREY for cell in pool.cells],
                "width": [3 if cell.touched else 1 if cell.owners else 0.4 for cell in pool.cells],
            },
        },
        customdata=[_words(n, cell) for n, cell in enumerate(pool.cells)],
        hovertemplate="%{customdata}<extra></extra>",
    )
    held = [(place, cell) for place, cell in zip(places, pool.cells, strict=True) if cell.filled]
    made.add_bar(
        name="tokens",
        x=[x for (x, _), _ in held],
        y=[SIZE * cell.filled / BLOCK_SIZE for _, cell in held],
        base=[y for (_, y), _ in held],
        width=SIZE,
        marker={"color": [KINDS[cell.owners[0] % len(KINDS)] for _, cell in held], "line": {"width": 0}},
        hoverinfo="skip",
    )
    shared = [(place, cell) for place, cell in held if len(cell.owners) > 1]
    made.add_scatter(
        name="sequences that share it",
        x=[x for (x, _), _ in shared],
        y=[y + SIZE / 2 for (_, y), _ in shared],
        mode="text",
        text=[str(len(cell.owners)) for _, cell in shared],
        textfont={"size": 15 if columns == FEW_COLUMNS else 9, "color": "#FFFFFF"},
        hoverinfo="skip",
    )
    return made


def _words(number: int, cell: Cell) -> str:
    if not cell.owners:
        return f"block {number}: free{', contents still usable' if cell.cached else ''}"
    who = ", ".join(str(owner + 1) for owner in cell.owners)
    return f"block {number}: request {who}; {cell.filled} of {BLOCK_SIZE} slots hold tokens"


def grid_finding(pool: Pool) -> str:
    """What a grid shows."""
    shared = sum(1 for cell in pool.cells if len(cell.owners) > 1)
    return (
        f"The {pool.name} cache: {fmt.plural(pool.requests, 'request')} hold {pool.used_blocks} of {len(pool.cells)} blocks, "
        f"{shared} of them shared; {fmt.count(pool.wasted_slots)} token slots are held but empty."
    )
