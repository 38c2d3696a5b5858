"""Chart builders: pure functions from plain numbers to `Drawing`. What a page's chart says is in `pages._figures`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

import numpy as np

from calc.provenance import Estimate
from pages._axes import (
    COLOURS,
    FAINT,
    GREY,
    HOVER,
    KINDS,
    LINE_WIDTH,
    ROWS,
    Mark,
    faded,
    figure,
    hline,
    linear,
    logarithmic,
    name_inside,
    vline,
)
from pages._drawing import Drawing


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line: its name, its y values, and the key of its colour; `low` and `high` draw a band around it."""

    name: str
    values: Sequence[float]
    colour: str = "main"
    dash: str = "solid"
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of a stacked bar, in the unit of the axis."""

    name: str
    size: float
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A run of equal layers on the block map: its row, where it starts, how many, and what kind it is."""

    row: str
    start: int
    size: int
    kind: str
    hover: str


def memory_bar(
    rows: Sequence[tuple[str, Sequence[Segment]]],
    *,
    unit: str,
    marks: Sequence[Mark] = (),
) -> Drawing:
    """One stacked bar per kind of GPU, with marks (the wall, what the peak would need) on the same axis."""
    furthest = max(sum(s.size for s in segments) for _, segments in rows)
    levels = max((mark.level for mark in marks), default=0)
    limit = 1.04 * max([furthest, *(mark.at for mark in marks)])
    made = figure(
        height=134 + 46 * len(rows) + 16 * levels,
        top=36 + 16 * levels,
        barmode="stack",
        hovermode="closest",
        bargap=0.35,
        xaxis=linear(0, limit, "", unit=f" {unit}"),
        yaxis=ROWS,
        legend={"traceorder": "normal", "y": -0.4 if len(rows) < 2 else -0.3},
    )
    names = list(dict.fromkeys(segment.name for _, segments in rows for segment in segments))
    labels = [label for label, _ in rows]
    for name in names:
        found = [next((s for s in segments if s.name == name), None) for _, segments in rows]
        colour = next(COLOURS[s.colour] for s in found if s)
        made.add_bar(
            name=name,
            y=labels,
            x=[s.size if s else 0 for s in found],
            orientation="h",
            marker={"color": colour, "line": {"color": FAINT, "width": 1}},
            hovertemplate=f"{name}: %{{x:{HOVER}}} {unit}<extra></extra>",
        )
    for mark in marks:
        vline(made, mark)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A bar of a waterfall that hangs from `start` down to `end`; `low` to `high`: where its uncertain edge may lie."""

    name: str
    start: float
    end: float
    low: float
    high: float
    colour: str
    hover: str


def waterfall(drops: Sequence[Drop], *, unit: str) -> Drawing:
    """Steps from the whole to what is left, one row each, from the top down."""
    top = 1.03 * max(drop.start for drop in drops)
    made = figure(
        height=62 + 40 * len(drops),
        showlegend=False,
        top=10,
        hovermode="closest",
        bargap=0.3,
        xaxis=linear(0, top, "", unit=f" {unit}"),
        yaxis=ROWS,
    )
    made.add_bar(
        y=[drop.name for drop in drops],
        x=[drop.start - drop.end for drop in drops],
        base=[drop.end for drop in drops],
        orientation="h",
        marker={"color": [COLOURS[drop.colour] for drop in drops], "line": {"color": GREY, "width": 1}},
        customdata=[drop.hover for drop in drops],
        hovertemplate="%{customdata}<extra></extra>",
    )
    for drop in drops:
        if drop.high > drop.low:
            made.add_scatter(
                x=[drop.low, drop.high],
                y=[drop.name, drop.name],
                mode="lines",
                line={"color": GREY, "width": 3},
                hoverinfo="skip",
            )
    return made


def lines(
    x: Sequence[float],
    series: Sequence[Series],
    *,
    xaxis: dict[str, Any],
    yaxis: dict[str, Any],
    vertical: Sequence[Mark] = (),
    horizontal: Sequence[Mark] = (),
    height: int = 380,
    **layout: Any,
) -> Drawing:
    """Lines over one axis, with bands, and labelled limits across them; `layout` as of `figure`."""
    levels = max((mark.level for mark in vertical), default=0)
    made = figure(
        height=height + 16 * levels,
        top=34 + 16 * levels,
        xaxis=xaxis,
        yaxis=yaxis,
        **{"showlegend": len(series) > 1} | layout,
    )
    for one in series:
        if one.low is not None and one.high is not None:
            _band(made, x, one)
        made.add_scatter(
            x=list(x),
            y=list(one.values),
            name=one.name,
            mode="lines",
            line={"color": COLOURS[one.colour], "width": LINE_WIDTH, "dash": one.dash},
        )
    for mark in vertical:
        if xaxis["type"] != "log" or mark.at > 0:
            vline(made, mark)
    for mark in horizontal:
        hline(made, mark)
    return made


def range_series(name: str, value: Estimate, *, colour: str = "main", dash: str = "solid") -> Series:
    """A series with its band; no band where the estimate is a single value."""
    exact = bool(np.all(np.asarray(value.low) == np.asarray(value.high)))
    return Series(
        name=name,
        values=np.asarray(value.best).tolist(),
        colour=colour,
        dash=dash,
        low=None if exact else np.asarray(value.low).tolist(),
        high=None if exact else np.asarray(value.high).tolist(),
    )


def two_panels(
    x: Sequence[float],
    upper: Sequence[Series],
    lower: Sequence[Series],
    *,
    xaxis: dict[str, Any],
    yaxes: tuple[dict[str, Any], dict[str, Any]],
    vertical: Sequence[Mark] = (),
    lower_target: Mark | None = None,
) -> Drawing:
    """Two quantities over one axis, one above the other, so that a limit crosses both; the legend names each once."""
    made = lines(
        x,
        upper,
        xaxis=xaxis | {"anchor": "y2"},
        yaxis=yaxes[0] | {"domain": [0.55, 1]},
        vertical=vertical,
        height=520,
        yaxis2=yaxes[1] | {"domain": [0, 0.45], "anchor": "x"},
        legend={"y": -0.14},
    )
    for one in lower:
        if one.low is not None and one.high is not None:
            _band(made, x, one, yaxis="y2")
        made.add_scatter(
            x=list(x),
            y=list(one.values),
            name=one.name,
            mode="lines",
            yaxis="y2",
            showlegend=False,
            line={"color": COLOURS[one.colour], "width": LINE_WIDTH, "dash": one.dash},
        )
    if lower_target is not None:
        hline(made, lower_target, axis="y2")
    return made


def _band(made: Drawing, x: Sequence[float], one: Series, *, yaxis: str = "y") -> None:
    """The range around a line, without a legend entry and out of the way of the pointer."""
    made.add_scatter(
        x=[*x, *reversed(list(x))],
        y=[*list(one.high or ()), *reversed(list(one.low or ()))],
        fill="toself",
        fillcolor=faded(COLOURS[one.colour]),
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        yaxis=yaxis,
        name=f"{one.name}, range",
    )


def dot(
    made: Drawing, x: float, y: float, *, name: str, colour: str, hollow: bool = False, legend: bool = True
) -> None:
    """One marked point: filled where it works, hollow where it does not."""
    made.add_scatter(
        x=[x],
        y=[y],
        name=name,
        mode="markers",
        showlegend=legend,
        marker={
            "color": COLOURS[colour],
            "size": 10,
            "symbol": "circle-open" if hollow else "circle",
            "line": {"width": 2, "color": COLOURS[colour]},
        },
    )


def block_map(pieces: Sequence[Piece]) -> Drawing:
    """Layers in order, one row per stack, one colour per kind of layer."""
    rows = list(dict.fromkeys(piece.row for piece in pieces))
    last = max((piece.start + piece.size for piece in pieces), default=1)
    made = figure(
        height=130 + 44 * len(rows),
        top=8,
        barmode="overlay",
        hovermode="closest",
        xaxis=linear(0, last, "layer"),
        yaxis=ROWS,
        legend={"y": -0.5, "traceorder": "normal"},
    )
    for number, kind in enumerate(dict.fromkeys(piece.kind for piece in pieces)):
        alike = [piece for piece in pieces if piece.kind == kind]
        made.add_bar(
            name=kind,
            y=[piece.row for piece in alike],
            x=[piece.size for piece in alike],
            base=[piece.start for piece in alike],
            orientation="h",
            customdata=[piece.hover for piece in alike],
            hovertemplate="%{customdata}<extra></extra>",
            marker={"color": KINDS[number % len(KINDS)], "line": {"color": GREY, "width": 1}},
        )
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """Points of one kind on the roofline: areas by share, hover texts, and what a click on each selects."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    shares: Sequence[float]
    hover: Sequence[str]
    colour: str
    symbol: str


LARGEST_DOT = 46.0
SMALLEST_SHARE = 0.004  # of the time: a smaller one is drawn as large


def roofline(
    *,
    bandwidth: float,
    roofs: Sequence[tuple[str, float]],
    dots: Sequence[Dots],
    trails: Sequence[Series],
    trail_x: Sequence[Sequence[float]],
    x_range: tuple[float, float],
    y_range: tuple[float, float],
) -> Drawing:
    """Log-log: the memory slope, a thin roof per format, operators as dots whose area is their share of time."""
    made = figure(
        height=520,
        top=20,
        hovermode="closest",
        xaxis=logarithmic(*x_range, "FLOP per byte"),
        yaxis=logarithmic(*y_range, "FLOP/s of one GPU"),
        legend={"y": -0.16, "itemsizing": "constant"},
    )
    _draw_roofs(made, roofs, bandwidth=bandwidth, left=x_range[0], right=x_range[1])
    for one, x in zip(trails, trail_x, strict=True):
        made.add_scatter(
            x=list(x),
            y=list(one.values),
            mode="lines",
            name=one.name,
            hoverinfo="skip",
            line={"color": COLOURS[one.colour], "width": LINE_WIDTH, "dash": one.dash},
        )
    for group in dots:
        _draw_dots(made, group)
    return made


def _draw_roofs(
    made: Drawing, roofs: Sequence[tuple[str, float]], *, bandwidth: float, left: float, right: float
) -> None:
    """The memory slope up to the highest roof, then each roof from its ridge to the right, where its name stands."""
    highest = max(rate for _, rate in roofs)
    made.add_scatter(
        x=[left, highest / bandwidth],
        y=[left * bandwidth, highest],
        mode="lines",
        name="memory bandwidth",
        hoverinfo="skip",
        line={"color": COLOURS["memory"], "width": 2},
    )
    for name, rate in roofs:
        made.add_scatter(
            x=[rate / bandwidth, right],
            y=[rate, rate],
            mode="lines",
            name=f"{name} roof",
            showlegend=False,
            hoverinfo="skip",
            line={"color": COLOURS["compute"], "width": 1.5},
        )
        name_inside(made, name, x=log10(right), y=log10(rate), xanchor="right", yanchor="bottom", yshift=2)


def _draw_dots(made: Drawing, group: Dots) -> None:
    made.add_scatter(
        x=list(group.x),
        y=list(group.y),
        mode="markers",
        name=group.name,
        customdata=list(group.hover),
        hovertext=[text.replace(", ", "<br>") for text in group.hover],  # one line would be cut on a phone
        selected={"marker": {"opacity": 1.0}},
        unselected={"marker": {"opacity": 0.45}},
        hovertemplate="%{hovertext}<extra></extra>",
        marker={
            "color": COLOURS[group.colour],
            "symbol": group.symbol,
            "opacity": 0.8,
            "sizemode": "area",
            "size": [max(share, SMALLEST_SHARE) for share in group.shares],
            "sizeref": 2.0 * max([*group.shares, SMALLEST_SHARE]) / LARGEST_DOT**2,
            "sizemin": 5,
            "line": {"color": GREY, "width": 1},
        },
    )
