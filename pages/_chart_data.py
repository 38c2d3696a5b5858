"""The numbers of a chart as rows: read back from the figure that is on screen, so that no chart can lack them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pages._drawing import Drawing

COORDINATES = ("x", "y", "base", "text", "customdata")
WORDS = {"base": "from", "text": "label", "customdata": "detail"}


def chart_rows(made: Drawing) -> list[dict[str, Any]]:
    """One row a point: the trace's name, its coordinates under their axes' titles, labels and hover texts."""
    return [row for number, trace in enumerate(made.traces) for row in _trace_rows(made, trace, number)]


def _trace_rows(made: Drawing, trace: Mapping[str, Any], number: int) -> Iterator[dict[str, Any]]:
    columns = {
        _title(made, trace, name): values for name in COORDINATES if (values := _listed(trace.get(name)))
    }
    for place in range(max(map(len, columns.values()), default=0)):
        cells = {
            title: _cell(values[place] if place < len(values) else None) for title, values in columns.items()
        }
        if any(cell is not None for cell in cells.values()):  # else a gap in a line, or a zone's name alone
            yield {"series": trace.get("name") or f"trace {number + 1}", **cells}


def _listed(values: Any) -> list[Any]:
    """A trace's values as a list; one value for all points says nothing about any and is left out."""
    if values is None or isinstance(values, str | int | float):
        return []
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _title(made: Drawing, trace: Mapping[str, Any], name: str) -> str:
    if name not in ("x", "y"):
        return WORDS[name]
    axis = trace.get(f"{name}axis", name).replace(name, f"{name}axis", 1)
    title = made.layout[axis].get("title", {}).get("text")
    return f"{name}: {title}" if title else name


def _cell(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
