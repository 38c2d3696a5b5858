"""A chart as plain data, in Plotly's words.

Plotly's own figure checks every property as it is set: 10 ms of processor time for a chart of two panels, more than the
rest of such a page. A `Drawing` only collects what it is told; the tests have Plotly check each one (`checked`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import plotly.graph_objects as go
import plotly.io


class Drawing:
    """Traces and layout of one chart, each by the names of Plotly's reference."""

    def __init__(self, layout: dict[str, Any]) -> None:
        self.traces: list[dict[str, Any]] = []
        self.shapes: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.layout = layout

    def add_scatter(self, **trace: Any) -> None:
        """Points, a line, or both; `type="scattergl"` for more points than a browser draws as shapes."""
        self.traces.append({"type": "scatter", **trace})

    def add_bar(self, **trace: Any) -> None:
        """Bars, upright or along `orientation`."""
        self.traces.append({"type": "bar", **trace})

    def add_shape(self, **shape: Any) -> None:
        """A line or a rectangle across the plot."""
        self.shapes.append(shape)

    def add_annotation(self, **annotation: Any) -> None:
        """A text beside a point of the plot."""
        self.annotations.append(annotation)

    def spec(self) -> dict[str, Any]:
        """The whole chart; Streamlit's template stands in it, whose colours the browser replaces by the theme's."""
        marks = {"shapes": self.shapes, "annotations": self.annotations}
        layout = {**self.layout, **{name: made for name, made in marks.items() if made}}
        return {"data": self.traces, "layout": {**layout, "template": _template(plotly.io.templates.default)}}

    def checked(self) -> go.Figure:
        """The chart as Plotly's own figure; raises `ValueError` at a property that Plotly does not know."""
        return go.Figure(self.spec())


class Prepared(go.Figure):  # type: ignore[misc]
    """A drawing for `st.plotly_chart`, which asks a figure for its dictionary and has everything else checked first.

    Nothing else of a figure is asked for, so none of it is set up.
    """

    def __init__(self, drawing: Drawing) -> None:
        self._drawing = drawing

    def to_dict(self) -> dict[str, Any]:
        """What the drawing collected."""
        return self._drawing.spec()


@cache
def _template(name: str) -> dict[str, Any]:
    found: dict[str, Any] = plotly.io.templates[name].to_plotly_json()
    return found
