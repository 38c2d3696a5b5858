"""Predicted against measured: the identity line, the points around it, and what the picture says in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calc import format as fmt
from pages._axes import COLOURS, GREY, figure, fine_logarithmic
from pages._drawing import Drawing
from presets.accuracy import Comparison, shares

MARGIN = 1.3  # room beyond the furthest points, as a factor
NEAR = 0.2  # within a fifth of the measurement
SVG_POINTS = 2000  # above that WebGL draws faster


def scatter(rows: Sequence[Comparison], *, unit: str) -> Drawing:
    """Measured on x, predicted on y, both logarithmic; inside and outside the stated range by shape and colour."""
    values = [value for row in rows for value in (row.measured, row.best)]
    low, high = min(values) / MARGIN, max(values) * MARGIN
    made = figure(
        height=460,
        hovermode="closest",
        xaxis=_axis(low, high, "measured", unit),
        yaxis=_axis(low, high, "predicted", unit),
    )
    made.add_scatter(
        x=[low, high],
        y=[low, high],
        mode="lines",
        line={"color": GREY, "width": 2, "dash": "dash"},
        name="predicted = measured",
        hoverinfo="skip",
    )
    kind = "scattergl" if len(rows) > SVG_POINTS else "scatter"
    for inside, name, colour, symbol in (
        (True, "in the stated range", COLOURS["main"], "circle"),
        (False, "outside it", COLOURS["target"], "x"),
    ):
        chosen = [row for row in rows if row.inside is inside]
        made.add_scatter(
            type=kind,
            x=[row.measured for row in chosen],
            y=[row.best for row in chosen],
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 6, "opacity": 0.6},
            name=name,
            customdata=[[row.group, row.note, f"{100 * row.error:+.0f}%"] for row in chosen],
            hovertemplate="%{customdata[0]}<br>%{customdata[1]}<br>error %{customdata[2]}<extra></extra>",
        )
    return made


def _axis(low: float, high: float, title: str, unit: str) -> dict[str, Any]:
    if unit == "s":
        return fine_logarithmic(low, high, title, reading=fmt.seconds, steps=(1, 3))
    return fine_logarithmic(low, high, f"{title}, {unit}")


def finding(rows: Sequence[Comparison], quantity: str) -> str:
    """What the scatter shows, for those who cannot see it."""
    near, inside = shares(rows, within=NEAR)
    worst = max(rows, key=lambda row: abs(row.error))
    return (
        f"{quantity}: {fmt.percent(near)} of {fmt.count(len(rows))} predictions lie within {fmt.percent(NEAR)} of the "
        f"measurement, {fmt.percent(inside)} inside the stated range; the furthest is {worst.group}, {worst.note}."
    )
