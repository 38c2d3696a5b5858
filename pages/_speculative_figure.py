"""The charts of *Speculative decoding* and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calc import format as fmt
from calc.speculation_curves import BATCHES, DraftCurve, Sampled
from pages._axes import COLOURS, GREY, LINE_WIDTH, Mark, doubling, figure, linear
from pages._charts import Series, lines
from pages._drawing import Drawing


def draft_figure(
    curve: DraftCurve, drafts: int, *, batch: int, at_batch: Sequence[float], sampled: Sequence[Sampled] = ()
) -> Drawing:
    """Tokens per pass as bars, speed-ups as lines with their best length marked, simulated means as crosses."""
    top = 1.1 * max(*curve.tokens_per_pass, *curve.speedup, *at_batch, 1.0)
    made = figure(
        height=360,
        xaxis=linear(-0.6, curve.drafts[-1] + 0.6, "drafted tokens") | {"dtick": 2},
        yaxis=linear(0, top, "tokens, times"),
    )
    made.add_bar(
        x=list(curve.drafts),
        y=list(curve.tokens_per_pass),
        name="tokens a pass",
        marker={"color": [COLOURS["overhead"] if n == drafts else COLOURS["card"] for n in curve.drafts]},
    )
    _draw_gain(made, curve.drafts, curve.speedup, name="speed-up, free check", dash="dash")
    if at_batch:
        _draw_gain(made, curve.drafts, at_batch, name=f"speed-up at batch {batch}")
    if sampled:
        made.add_scatter(
            x=[one.drafts for one in sampled],
            y=[one.mean for one in sampled],
            name="simulated",
            mode="markers",
            marker={"color": GREY, "symbol": "x", "size": 9},
            error_y={"array": [3 * one.standard_error for one in sampled], "color": GREY},
        )
    return made


def _draw_gain(
    made: Drawing, drafts: Sequence[int], gains: Sequence[float], *, name: str, dash: str = "solid"
) -> None:
    """A line with a star at its best length."""
    best = max(range(len(gains)), key=gains.__getitem__)
    made.add_scatter(
        x=list(drafts),
        y=list(gains),
        name=f"{name}, best {drafts[best]}",
        mode="lines+markers",
        line={"color": COLOURS["main"], "width": LINE_WIDTH, "dash": dash},
        marker={
            "symbol": ["star" if n == best else "circle" for n in range(len(gains))],
            "size": [15 if n == best else 5 for n in range(len(gains))],
        },
    )


def draft_finding(curve: DraftCurve, drafts: int, *, batch: int, at_batch: Sequence[float]) -> str:
    """What the bars show."""
    there = ""
    if at_batch:
        best = max(range(len(at_batch)), key=at_batch.__getitem__)
        there = f" At batch {batch} it is highest at {best}, {fmt.factor(at_batch[best])}."
    return (
        f"Tokens per pass rise from 1 to {fmt.significant(curve.tokens_per_pass[-1])} with the draft length; "
        f"{fmt.significant(curve.tokens_per_pass[drafts])} at {drafts}. The speed-up is highest at {curve.best} where "
        f"checking is free.{there}"
    )


def gain_figure(by_batch: Sequence[float], simulated: Mapping[int, float]) -> Drawing:
    """The speed-up as the batch grows, and what the serving simulator measured."""
    made = lines(
        BATCHES,
        [Series(name="speed-up", values=by_batch)],
        xaxis=doubling(1, BATCHES[-1], "sequences that decode together"),
        yaxis=linear(0, 1.15 * max(*by_batch, *simulated.values(), 1.0), "speed-up, times"),
        horizontal=[Mark(at=1.0, text="no gain", colour="mean")],
        height=300,
        showlegend=bool(simulated),
        legend={"y": -0.28},
    )
    if simulated:
        made.add_scatter(
            x=list(simulated),
            y=list(simulated.values()),
            name="simulated serving",
            mode="markers",
            marker={"color": GREY, "symbol": "x", "size": 11},
        )
    return made


def gain_finding(by_batch: Sequence[float], drafts: int) -> str:
    """What the falling curve shows."""
    return (
        f"With {fmt.plural(drafts, 'draft')} the speed-up falls from {fmt.factor(by_batch[0])} at batch 1 to "
        f"{fmt.factor(by_batch[-1])} at batch {BATCHES[-1]}, where checking is bound by arithmetic."
    )
