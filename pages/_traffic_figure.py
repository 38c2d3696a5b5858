"""The charts of *Simulate traffic* and what they say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calc import format as fmt
from calc.saturation import State
from calc.simulation.results import Series, SimulationResult
from calc.slo import Slo
from calc.traffic import Distribution, RatePoint
from calc.units import MS
from pages._axes import Mark, fine_logarithmic, linear, shade
from pages._charts import Series as Line
from pages._charts import dot, lines, two_panels
from pages._drawing import Drawing

SMALLEST_S = 1e-4
WIDE = 50.0  # from which a time axis is logarithmic


def distribution_figure(name: str, found: Distribution, target_s: float | None) -> Drawing:
    """The share of requests against the time that they stay below, with the target as a line."""
    longest = max(found.seconds[-1], target_s or 0.0)
    unit, scale = ("s", 1.0) if longest >= 1 else ("ms", MS)
    seconds = [max(value, SMALLEST_S) / scale for value in found.seconds]
    low = min(seconds[0], (target_s or longest) / scale)
    high = longest / scale
    wide = high / low > WIDE
    title = f"{name}, {unit}"
    return lines(
        seconds,
        [Line(name=name, values=[100 * share for share in found.share], colour="main")],
        xaxis=fine_logarithmic(low / 1.5, 1.5 * high, title) if wide else linear(0, 1.15 * high, title),
        yaxis=linear(0, 101, "requests", unit="%"),
        vertical=[]
        if target_s is None
        else [Mark(at=target_s / scale, text=f"target {fmt.seconds(target_s)}", colour="target")],
        height=300,
    )


def distribution_finding(name: str, result: SimulationResult, field: str, target_s: float | None) -> str:
    """What a distribution shows."""
    found = result.spread(field)
    target = "no target" if target_s is None else f"target {fmt.seconds(target_s)}"
    return (
        f"{name} of {fmt.count(len(result))} requests: half stay below {fmt.optional(found.p50, fmt.seconds)}, "
        f"99% below {fmt.optional(found.p99, fmt.seconds)}; {target}."
    )


def series_figure(series: Series, num_blocks: int, replicas: int) -> Drawing:
    """Running and waiting requests above, the share of the KV pool below, over time."""
    middle = (series.edges_s[1:] + series.edges_s[:-1]) / 2
    pool = 100 * series.used_blocks / max(1, num_blocks * replicas)
    highest = max(1.0, float(np.max(series.running)), float(np.max(series.waiting)))
    return two_panels(
        middle.tolist(),
        [
            Line(name="running", values=series.running.tolist(), colour="main"),
            Line(name="waiting", values=series.waiting.tolist(), colour="target", dash="dot"),
        ],
        [Line(name="KV pool", values=pool.tolist(), colour="kv")],
        xaxis=linear(0, float(series.edges_s[-1]), "time, s"),
        yaxes=(linear(0, 1.08 * highest, "requests"), linear(0, 105, "KV pool", unit="%")),
    )


def series_finding(result: SimulationResult) -> str:
    """What the time series shows."""
    share = result.peak_blocks / max(1, result.num_blocks)
    return (
        f"Over {fmt.seconds(result.makespan_s)} at most {fmt.plural(result.peak_running, 'request')} run on one replica and "
        f"{fmt.percent(share)} of its KV pool is in use; {fmt.plural(result.preemptions, 'preemption')}."
    )


def goodput_figure(points: Sequence[RatePoint], now_per_s: float) -> Drawing:
    """Requests that met every target against requests offered; saturated rates are shaded and hollow."""
    rates = [point.rate_per_s for point in points]
    top = 1.08 * max(rates)
    made = lines(
        rates,
        [
            Line(name="met every target", values=[p.goodput_per_s for p in points], colour="main"),
            Line(name="offered", values=rates, colour="mean", dash="dot"),
        ],
        xaxis=linear(0, top, "requests/s offered"),
        yaxis=linear(0, top, "requests/s"),
        vertical=[Mark(at=now_per_s, text="now", colour="main", dash="dot")],
        height=320,
    )
    lost = [point.rate_per_s for point in points if point.state == State.SATURATED]
    if lost:
        shade(made, min(lost), top, colour="does not fit", text="saturated")
    for point in points:
        saturated = point.state == State.SATURATED
        colour = "does not fit" if saturated else "fits"
        dot(
            made,
            point.rate_per_s,
            point.goodput_per_s,
            name=point.state,
            colour=colour,
            hollow=saturated,
            legend=False,
        )
    return made


def goodput_finding(points: Sequence[RatePoint], slo: Slo) -> str:
    """What the sweep shows."""
    best = max(points, key=lambda point: point.goodput_per_s)
    kind = "targets" if slo.ttft_s or slo.tpot_s or slo.e2e_s else "no targets"
    return f"Goodput ({kind}) is highest, {fmt.plain(best.goodput_per_s, 'requests/s')}, at {fmt.plain(best.rate_per_s, 'requests/s')} offered."
