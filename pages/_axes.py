"""The ground of every chart: colours with one meaning, axes with explicit ranges, lines and zones with labels.

Shapes take data units on every axis but annotations take log10 on a log axis, so every line with a label goes through
`vline` and `hline`. Greys are half transparent, so that they read on light and on dark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

import streamlit as st

from calc.format import si, significant
from pages._drawing import Drawing

# One meaning each, everywhere (Okabe-Ito and neighbours of it that survive colour blindness).
COLOURS = {
    "weights": "#0072B2",
    "kv": "#E69F00",
    "activations": "#009E73",
    "overhead": "#8D99A6",
    "card": "rgba(128,128,128,0.35)",
    "free": "rgba(128,128,128,0.16)",
    "kv wall": "#CC3399",
    "compute": "#7B5CD6",
    "memory": "#D1495B",
    "link": "#56B4E9",
    "decode": "#E69F00",
    "prefill": "#1098AD",
    "target": "#D55E00",
    "fits": "#009E73",
    "does not fit": "#D55E00",
    "main": "#1098AD",
    "mean": "#8D99A6",
    "p50": "#56B4E9",
    "p95": "#1098AD",
    "p99": "#7B5CD6",
    "fp8": "#0072B2",
    "int8": "#56B4E9",
    "int4": "#D55E00",
    "fp4": "#009E73",
    "nvfp4": "#7B5CD6",
}
GREY = "rgba(128,128,128,0.9)"
FAINT = "rgba(128,128,128,0.22)"
KINDS = ("#0072B2", "#E69F00", "#009E73", "#CC3399", "#7B5CD6", "#56B4E9", "#8D99A6")
LINE_WIDTH = 2.5
HOVER, HOVER_SI = ",.3~r", ".3~s"  # three significant digits under the pointer too
MOST_DECADES = 8  # with a written tick
LABEL_SIZE = 12
CHART_TEXT = {
    "light": "#4A5560",
    "dark": "#AEB9C4",
}  # at least 4.5 to 1 on the grounds of .streamlit/config.toml
GROUND = {
    "light": "rgba(255,255,255,0.82)",
    "dark": "rgba(15,21,25,0.82)",
}  # those grounds, nearly opaque: behind a label that stands among lines
LEGEND_BELOW_PX = 88  # under the ticks and the title of a low figure's axis
ROWS = {"autorange": "reversed", "showgrid": False}
"""A y axis of names, the first at the top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A labelled line across the plot at a value; `level` lifts the label above a neighbour's."""

    at: float
    text: str
    colour: str = "kv wall"
    dash: str = "dash"
    level: int = 0


def figure(*, height: int = 380, showlegend: bool = True, top: int = 34, **layout: Any) -> Drawing:
    """An empty figure in the house layout: legend below, room for labels above, hover per x.

    `layout`: what differs, by the names of Plotly's layout; what it says of an axis or a part adds to the house's.
    """
    house: dict[str, Any] = {
        "height": height,
        "margin": {"l": 8, "r": 14, "t": top, "b": 8},
        "showlegend": showlegend,
        "legend": {"orientation": "h", "y": min(-0.2, -LEGEND_BELOW_PX / height), "yanchor": "top", "x": 0},
        "hovermode": "x unified",
        "hoverlabel": {"namelength": -1},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "uirevision": "keep",
    }
    for name in {"xaxis", "yaxis", *(name for name in layout if "axis" in name)}:
        house[name] = {"gridcolor": FAINT, "zeroline": False, "automargin": True}
    for name, given in layout.items():
        house[name] = house[name] | given if isinstance(house.get(name), dict) else given
    _colour_text(house)
    return Drawing(house)


def _colour_text(house: dict[str, Any]) -> None:
    """Ticks, titles and labels in a grey that reads on the theme's ground: Streamlit's own is too pale for small print."""
    colour = CHART_TEXT.get(st.context.theme.type or "")
    if colour is None:  # no browser has told its theme yet
        return
    font = {"color": colour}
    house["font"] = font
    house["legend"] = house["legend"] | {"font": font}
    for name, axis in house.items():
        if "axis" in name:
            axis["tickfont"] = font
            axis["title"] = {**axis.get("title", {}), "font": font}


def linear(low: float, high: float, title: str, *, unit: str = "") -> dict[str, Any]:
    """Layout of a linear axis with an explicit range."""
    return {
        "type": "linear",
        "range": [low, high],
        "title": {"text": title},
        "ticksuffix": unit,
        "tickformat": ",",
        "hoverformat": HOVER,
    }


def logarithmic(low: float, high: float, title: str, *, unit: str = "") -> dict[str, Any]:
    """Layout of a log axis with an explicit range and SI ticks, one per decade, or where a unit follows fewer."""
    axis: dict[str, Any] = {
        "type": "log",
        "range": [log10(low), log10(high)],
        "title": {"text": title},
        "hoverformat": HOVER_SI,
        "exponentformat": "SI extended",
        "separatethousands": True,
        "dtick": 1,
    }
    if not unit:
        return axis
    decades = range(ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9) + 1)
    shown = [10.0**power for power in decades][:: max(1, -(-len(decades) // MOST_DECADES))]
    return axis | {
        "dtick": None,
        "ticksuffix": unit,
        "tickvals": shown,
        "ticktext": [si(tick, unit) for tick in shown],
    }


def fine_logarithmic(
    low: float,
    high: float,
    title: str,
    *,
    reading: Callable[[float], str] = significant,
    steps: tuple[int, ...] = (1, 2, 5),
) -> dict[str, Any]:
    """Layout of a log axis over a few decades: ticks at `steps` of each, written out by `reading`."""
    ticks = [step * 10.0**power for power in range(-9, 16) for step in steps]
    shown = [tick for tick in ticks if low <= tick <= high]
    axis = logarithmic(low, high, title)
    del axis["dtick"]
    return axis | {"tickvals": shown, "ticktext": [reading(tick) for tick in shown]}


def doubling(low: float, high: float, title: str) -> dict[str, Any]:
    """Layout of a log axis whose ticks are powers of two: batches, tokens."""
    ticks = [2**power for power in range(40) if low <= 2**power <= high]
    step = max(1, -(-len(ticks) // 10))
    return {
        "type": "log",
        "range": [log10(low), log10(high)],
        "title": {"text": title},
        "tickvals": ticks[::step],
        "ticktext": [_short(tick) for tick in ticks[::step]],
    }


def _short(tick: int) -> str:
    for size, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if tick >= size:
            return f"{tick // size}{letter}"
    return str(tick)


def labelled(text: str, colour: str) -> str:
    """A label in the theme's own text colour, which every eye can read, behind a block of its line's colour."""
    return f'<span style="color:{colour}">\u25ae</span> {text}'


def name_inside(made: Drawing, text: str, **where: Any) -> None:
    """A text inside the plot, at `where` by the names of Plotly's annotations; lines that cross it pass behind its ground."""
    ground = GROUND.get(st.context.theme.type or "", "rgba(0,0,0,0)")
    made.add_annotation(
        text=text, showarrow=False, font={"size": LABEL_SIZE}, bgcolor=ground, borderpad=1, **where
    )


def vline(made: Drawing, mark: Mark) -> None:
    """A labelled vertical line at `mark.at` data units, right on linear and on log axes."""
    colour = COLOURS[mark.colour]
    made.add_shape(
        type="line",
        x0=mark.at,
        x1=mark.at,
        y0=0,
        y1=1,
        xref="x",
        yref="paper",
        line={"color": colour, "width": 2, "dash": mark.dash},
    )
    position, share = _place(made.layout["xaxis"], mark.at)
    made.add_annotation(
        x=position,
        y=1,
        xref="x",
        yref="paper",
        yanchor="bottom",
        yshift=16 * mark.level,
        xanchor="left" if share < 0.25 else "right" if share > 0.75 else "center",
        text=labelled(mark.text, colour),
        showarrow=False,
        font={"size": LABEL_SIZE},
    )


def hline(made: Drawing, mark: Mark, *, axis: str = "y") -> None:
    """A labelled horizontal line at `mark.at` data units of a y axis; its label stands inside, at the left."""
    colour = COLOURS[mark.colour]
    made.add_shape(
        type="line",
        y0=mark.at,
        y1=mark.at,
        x0=0,
        x1=1,
        xref="paper",
        yref=axis,
        line={"color": colour, "width": 2, "dash": mark.dash},
    )
    position, _ = _place(made.layout[axis.replace("y", "yaxis")], mark.at)
    name_inside(
        made,
        labelled(mark.text, colour),
        x=0.01,
        y=position,
        xref="paper",
        yref=axis,
        xanchor="left",
        yanchor="bottom",
        yshift=2,
    )


def _place(axis: Mapping[str, Any], at: float) -> tuple[float, float]:
    """Where an annotation goes (log10 on a log axis), and as a share of the axis."""
    position = log10(at) if axis["type"] == "log" else at
    low, high = axis["range"]
    return position, (position - low) / (high - low)


def faded(colour: str) -> str:
    """A colour at a sixth of its strength, for bands and zones."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def faded_line(colour: str) -> str:
    """A colour at two fifths of its strength, for thick lines that others cross."""
    return faded(colour).replace("0.16", "0.4")


def shade(made: Drawing, low: float, high: float, *, colour: str, text: str = "") -> None:
    """A zone between two x values, in data units, with its name in the legend."""
    made.add_shape(
        type="rect",
        x0=low,
        x1=high,
        y0=0,
        y1=1,
        xref="x",
        yref="paper",
        layer="below",
        line={"width": 0},
        fillcolor=faded(COLOURS[colour]),
    )
    if text:
        made.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            name=text,
            marker={"symbol": "square", "size": 12, "color": faded_line(COLOURS[colour])},
            hoverinfo="skip",
        )
