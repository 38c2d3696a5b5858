"""The charts of *Speculative decoding* and what they say."""

from __future__ import annotations

import plotly.graph_objects as go

from calc import format as fmt
from calc.speculation_curves import BATCHES, DraftCurve
from pages._axes import COLOURS, GREY, LINE_WIDTH, Mark, doubling, figure, linear
from pages._charts import Series, lines


def draft_figure(curve: DraftCurve, drafts: int, sampled: tuple[float, ...]) -> go.Figure:
    """Tokens per pass as bars, the speed-up as a line, simulated means as crosses."""
    made = figure(height=340)
    made.add_bar(
        x=list(curve.drafts),
        y=list(curve.tokens_per_pass),
        name="tokens a pass",
        marker={"color": [COLOURS["main"] if n == drafts else COLOURS["p50"] for n in curve.drafts]},
    )
    made.add_scatter(
        x=list(curve.drafts),
        y=list(curve.speedup),
        name="speed-up, checking free",
        mode="lines+markers",
        line={"color": COLOURS["compute"], "width": LINE_WIDTH},
    )
    if sampled:
        made.add_scatter(
            x=list(curve.drafts),
            y=list(sampled),
            name="simulated",
            mode="markers",
            marker={"color": GREY, "symbol": "x", "size": 9},
        )
    top = 1.1 * max(*curve.tokens_per_pass, *curve.speedup)
    made.update_layout(
        xaxis=linear(-0.6, curve.drafts[-1] + 0.6, "drafted tokens"), yaxis=linear(0, top, "tokens, times")
    )
    return made


def draft_finding(curve: DraftCurve, drafts: int) -> str:
    """What the bars show."""
    return (
        f"Tokens per pass rise from 1 to {fmt.significant(curve.tokens_per_pass[-1])} with the draft length; "
        f"{fmt.significant(curve.tokens_per_pass[drafts])} at {drafts}. The speed-up is highest at {curve.best}."
    )


def gain_figure(by_batch: tuple[float, ...]) -> go.Figure:
    """The speed-up as the batch grows."""
    return lines(
        BATCHES,
        [Series(name="speed-up", values=by_batch)],
        xaxis=doubling(1, BATCHES[-1], "sequences that decode together"),
        yaxis=linear(0, 1.15 * max(*by_batch, 1.0), "speed-up, times"),
        horizontal=[Mark(at=1.0, text="no gain", colour="target")],
        height=300,
    )


def gain_finding(by_batch: tuple[float, ...], drafts: int) -> str:
    """What the falling curve shows."""
    return (
        f"With {fmt.plural(drafts, 'draft')} the speed-up falls from {fmt.factor(by_batch[0])} at batch 1 to "
        f"{fmt.factor(by_batch[-1])} at batch {BATCHES[-1]}, where checking is bound by arithmetic."
    )
