"""The chart of *Queueing* and what it says."""

from __future__ import annotations

from collections.abc import Sequence

from calc import format as fmt
from calc.queue_curves import QueueCurve, QueueKind, SimulatedPoint
from calc.saturation import State, state_of
from calc.units import MS
from pages._axes import COLOURS, LINE_WIDTH, Mark, linear
from pages._charts import Series, dot, lines
from pages._drawing import Drawing

MOST_SERVICE_TIMES_SHOWN = 25


def queue_figure(
    curve: QueueCurve,
    *,
    load: float,
    limit_s: float,
    beside: QueueCurve | None = None,
    dots: Sequence[SimulatedPoint] = (),
) -> Drawing:
    """The hockey sticks, the present load, the limit, another queue's mean, and what a simulation measured."""
    highest = MOST_SERVICE_TIMES_SHOWN * curve.mean_s[0] / MS
    made = lines(
        [100 * u for u in curve.utilisation],
        [
            Series(name="mean", values=[s / MS for s in curve.mean_s], colour="mean"),
            Series(name="p95", values=[s / MS for s in curve.p95_s], colour="p95", dash="dash"),
            Series(name="p99", values=[s / MS for s in curve.p99_s], colour="p99", dash="dot"),
        ],
        xaxis=linear(0, 101, "utilisation", unit="%"),
        yaxis=linear(0, highest, "time in the system, ms"),
        vertical=[
            Mark(at=min(100.0, 100 * load), text=f"now {fmt.percent(load)}", colour="main", dash="dot")
        ],
        horizontal=[Mark(at=limit_s / MS, text=f"p95 limit {fmt.seconds(limit_s)}", colour="target")]
        if limit_s / MS < highest
        else [],
    )
    if beside is not None:
        made.add_scatter(
            x=[100 * u for u in beside.utilisation],
            y=[s / MS for s in beside.mean_s],
            name=f"mean of {beside.kind.symbol}",
            mode="lines",
            line={"color": COLOURS["mean"], "width": LINE_WIDTH, "dash": "longdash"},
        )
    for point in dots:
        for colour, value in (("mean", point.mean_s), ("p95", point.p95_s), ("p99", point.p99_s)):
            dot(made, 100 * point.utilisation, value / MS, name="simulated", colour=colour, legend=False)
    return made


def queue_finding(curve: QueueCurve, *, load: float, mean_s: float) -> str:
    """What the hockey sticks show."""
    now = (
        "the queue is saturated"
        if state_of(load) is State.SATURATED
        else f"the mean is {fmt.seconds(mean_s)}"
    )
    grown = fmt.significant(curve.mean_s[-1] / curve.mean_s[0])
    return (
        f"{curve.kind.symbol}: the mean time in the system rises from {fmt.seconds(curve.mean_s[0])} when idle to {grown} "
        f"times that at {fmt.percent(curve.utilisation[-1])} load; at {fmt.percent(load)} {now}."
    )


def other_kind(kind: QueueKind) -> QueueKind:
    """The queue that a reader compares with: the plain one, and beside it the one with even work."""
    return QueueKind.MD1 if kind is QueueKind.MM1 else QueueKind.MM1
