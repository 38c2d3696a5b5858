"""The Memory page's charts and what they say: the waterfall of one GPU, and three growths towards the wall."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from calc import format as fmt
from calc.memory.engines import Ledger, LineKind
from calc.memory.log_comparison import ComparedLine
from calc.memory.waterfall import Growth, WaterfallStep
from calc.units import GIB
from pages._axes import Mark, linear
from pages._charts import Drop, Series, lines, waterfall

COLOUR_OF = {
    "card": "card",
    str(LineKind.WEIGHTS): "weights",
    str(LineKind.ACTIVATION): "activations",
    str(LineKind.KV): "kv",
}
READINGS = {"bytes": fmt.binary_bytes, "tokens": fmt.count, "blocks": fmt.count, "share": fmt.percent}


def waterfall_figure(steps: Sequence[WaterfallStep]) -> go.Figure:
    """From the card's total down to the KV pool, in GiB, with the range of each step."""
    return waterfall(
        [
            Drop(
                name=step.name,
                start=step.start / GIB,
                end=step.end / GIB,
                low=_edge(step, step.bytes.low, step.bytes.high)[0] / GIB,
                high=_edge(step, step.bytes.low, step.bytes.high)[1] / GIB,
                colour=COLOUR_OF.get(step.name, "overhead"),
                hover=f"{step.name}: {fmt.binary_bytes(step.bytes)}<br>{step.note}",
            )
            for step in steps
        ],
        unit="GiB",
    )


def _edge(step: WaterfallStep, low: float, high: float) -> tuple[float, float]:
    """Where the edge that the range moves may lie: the right one of what is measured from zero, else the left one."""
    measured_from_zero = step.name in {"card", str(LineKind.KV)}
    return (low, high) if measured_from_zero else (max(0.0, step.start - high), max(0.0, step.start - low))


def waterfall_finding(ledger: Ledger, steps: Sequence[WaterfallStep]) -> str:
    """What the waterfall shows."""
    parts = ", ".join(f"{step.name} {fmt.binary_bytes(step.bytes.best)}" for step in steps)
    return f"Memory of {ledger.tightest.label} under {ledger.engine}: {parts}."


def growth_figure(growth: Growth) -> go.Figure:
    """Bytes needed against bytes available as one quantity grows, with today's value and the wall."""
    top = 1.15 * max([*growth.available_bytes, *growth.needed_bytes]) / GIB
    walled = growth.wall is not None and growth.wall <= growth.values[-1]
    marks = [
        Mark(at=growth.now, text="now", colour="main", dash="dot", level=0 if walled else 1)
    ]  # equal tops
    if growth.wall is not None and walled:
        marks.append(
            Mark(
                at=growth.wall, text=f"wall {fmt.count(growth.wall)}", colour="kv wall", dash="solid", level=1
            )
        )
    return lines(
        growth.values,
        [
            Series(name="needed", values=[b / GIB for b in growth.needed_bytes], colour="kv"),
            Series(
                name="available",
                values=[max(0.0, b / GIB) for b in growth.available_bytes],
                colour="mean",
                dash="dash",
            ),
        ],
        xaxis=linear(
            0,
            growth.values[-1],
            f"{growth.name}, {growth.unit}" if growth.name != growth.unit else growth.name,
        ),
        yaxis=linear(0, max(top, 0.001), "GiB"),
        vertical=marks,
        height=280,
        legend={"y": -0.42},
    )


def growth_finding(growth: Growth) -> str:
    """What one growth shows."""
    wall = (
        "never meets its wall here" if growth.wall is None else f"meets the wall at {fmt.count(growth.wall)}"
    )
    return f"KV cache needed as {growth.name} grow from today's {fmt.count(growth.now)} {growth.unit}: it {wall}."


def compared_row(line: ComparedLine) -> dict[str, str]:
    """One quantity of a pasted log beside the prediction."""
    reading = READINGS.get(line.unit, fmt.significant)
    return {
        "quantity": str(line.quantity),
        "predicted": fmt.optional(line.predicted, reading, "not predicted"),
        "logged": fmt.optional(line.logged, reading),
        "predicted over logged": fmt.optional(line.error, signed_percent, ""),
        "line": fmt.count(line.line),
    }


def signed_percent(error: float) -> str:
    """An error with its sign: "+1.2%"."""
    return f"{'+' if error > 0 else ''}{fmt.percent(error)}"
