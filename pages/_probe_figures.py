"""Figures of a measured run: pure functions from a run to `Drawing`, and the finding that each one states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calc import format as fmt
from calc.units import GB, TFLOP
from pages._axes import COLOURS, FAINT, GREY, KINDS, ROWS, doubling, faded, figure, linear, logarithmic
from pages._drawing import Drawing
from probes import store
from probes.store import Run

SHARES_ROOM = 1.2  # times the longest bar: its share stands beside it


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One measured rate: its share of the peak, the reading on it, and the usual range of that share where one is known."""

    label: str
    value: float
    peak: float
    reading: str
    usual: tuple[float, float] | None = None

    @property
    def share(self) -> float:
        return self.value / self.peak


def bars_of(run: Run) -> list[Bar]:
    """Rates of a run as shares of the datasheet's peaks, or of the run's own best samples where there is no datasheet."""
    device = store.accelerator_of(run)
    found = store.readings_of(run)
    usual = {row.quantity: row.usual for row in store.findings_of(run)}
    memory, peak = device.bandwidth_bytes_per_s, device.flop_per_s_16bit.flop_per_s

    def bar(label: str, value: float | None, of: float, unit: str, quantity: str = "") -> list[Bar]:
        if value is None:
            return []
        known = usual.get(quantity)
        reading = fmt.si(value, unit)
        return [
            Bar(
                label=label,
                value=value,
                peak=of,
                reading=reading,
                usual=(known.low, known.high) if known else None,
            )
        ]

    form = found.sixteen_bit
    rows = bar("Memory bandwidth", found.bandwidth, memory, "B/s", "memory bandwidth")
    rows += bar("Reading weights", found.weights.get(form), memory, "B/s")
    rows += bar("Reading the cache", found.attention, memory, "B/s")
    rows += bar(f"Products, {form}", found.compute_16bit, peak, "FLOP/s", f"{form} rate")
    rows += bar("Attention over prompts", found.prefill_attention, peak, "FLOP/s")
    for other, value in found.compute.items():
        if other != form and other in device.rates:
            rows += bar(
                f"Products, {other}", value, device.rates[other].flop_per_s, "FLOP/s", f"{other} rate"
            )
    return rows


def bars_figure(bars: Sequence[Bar], *, peak_name: str) -> Drawing:
    """Measured over the peak, one bar a rate, with the usual range behind it."""
    furthest = max(1.0, *(bar.share for bar in bars)) * 100
    made = figure(
        height=110 + 44 * len(bars),
        showlegend=False,
        top=30,
        bargap=0.3,
        hovermode="closest",
        xaxis=linear(0, SHARES_ROOM * furthest, f"% of {peak_name}"),
        yaxis=ROWS,
    )
    made.add_bar(
        y=[bar.label for bar in bars],
        x=[100 * bar.share for bar in bars],
        orientation="h",
        marker={"color": COLOURS["main"]},
        text=[fmt.percent(bar.share) for bar in bars],
        customdata=[f"{bar.reading}, {fmt.percent(bar.share)}" for bar in bars],
        textposition="outside",  # white on the bar would be too pale to read
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )
    for index, bar in enumerate(bars):
        if bar.usual is not None:
            made.add_shape(
                type="rect",
                x0=100 * bar.usual[0],
                x1=100 * bar.usual[1],
                y0=index - 0.48,
                y1=index + 0.48,
                line={"color": GREY, "width": 1, "dash": "dot"},
                fillcolor=faded(COLOURS["fits"]),
                layer="below",
            )
    return made


def bars_finding(bars: Sequence[Bar], *, peak_name: str) -> str:
    """What the bars say, for those who do not see them."""
    words = [f"{bar.label} {bar.reading}, {fmt.percent(bar.share)}" for bar in bars]
    return f"Measured, as a share of {peak_name}: {'; '.join(words)}."


def curve_figure(run: Run) -> Drawing | None:
    """FLOP/s of matrix products against tokens, one line per format and shape; None where none were measured."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for case in store.cases_of(run, "gemm"):
        what = case["parameters"]
        lines.setdefault(f"{what['format']}, {what['shape']}", []).append(
            (what["tokens"], case["value"] / TFLOP)
        )
    if not lines:
        return None
    tokens = [point[0] for line in lines.values() for point in line]
    highest = max(point[1] for line in lines.values() for point in line)
    unit = "TFLOP/s"
    if highest < 1:
        unit, highest = "GFLOP/s", 1e3 * highest
        lines = {name: [(x, 1e3 * y) for x, y in line] for name, line in lines.items()}
    made = figure(
        height=360,
        xaxis=doubling(0.9 * min(tokens), 1.1 * max(tokens), "tokens in one product"),
        yaxis=linear(0, 1.1 * highest, unit),
    )
    _draw_lines(made, lines)
    return made


def curve_finding(run: Run) -> str:
    """Where the curve ends, in words."""
    found = store.readings_of(run)
    reached = fmt.optional(found.compute_16bit, lambda value: fmt.si(value, "FLOP/s"))
    return f"Rate of {found.sixteen_bit} products against tokens; large ones sustain {reached}."


def _sizes(run: Run) -> list[tuple[float, float]]:
    """(bytes moved by one call, GB/s), the smallest first."""
    return sorted(
        (float(case["parameters"]["bytes"]), case["value"] / GB)
        for case in store.cases_of(run, "bandwidth")
        if case["parameters"].get("kernel") == "scale"
    )


def sizes_finding(run: Run) -> str:
    """Where the bandwidth is highest, and what is left of it once caches no longer help."""
    points = _sizes(run)
    size, best = max(points, key=lambda point: point[1])
    largest, last = points[-1]
    return (
        f"Memory bandwidth is highest, {fmt.si(best * GB, 'B/s')}, where one call moves {fmt.decimal_bytes(size)}; at "
        f"{fmt.decimal_bytes(largest)} it is {fmt.si(last * GB, 'B/s')}."
    )


def sizes_figure(run: Run) -> Drawing | None:
    """Bandwidth against size; None where fewer than two sizes were measured."""
    points = _sizes(run)
    if len(points) < 2:
        return None
    made = figure(
        height=320,
        showlegend=False,
        xaxis=logarithmic(0.8 * points[0][0], 1.25 * points[-1][0], "moved by one call", unit="B"),
        yaxis=linear(0, 1.1 * max(value for _, value in points), "GB/s"),
    )
    _draw_lines(made, {"scale": points})
    return made


def _draw_lines(made: Drawing, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    for index, (name, points) in enumerate(lines.items()):
        ordered = sorted(points)
        made.add_scatter(
            x=[x for x, _ in ordered],
            y=[y for _, y in ordered],
            name=name,
            mode="lines+markers",
            line={"color": KINDS[index % len(KINDS)], "width": 2.5},
            marker={"size": 7, "line": {"color": FAINT, "width": 1}},
        )


def attention_rows(run: Run) -> list[dict[str, Any]]:
    """Attention cases as a table: backend or way, size, rate, share of what products (prompts) or memory (decode) reach."""
    found = store.readings_of(run)
    rows = []
    for case in store.cases_of(run, "prefill_attention"):
        what = case["parameters"]
        rows.append(
            {
                "phase": "prompt",
                "by": what["backend"].replace("_", " ").lower(),
                "size": f"{what['tokens']:,} tokens",
                "rate": fmt.si(case["value"], "FLOP/s"),
                "share": _share(case["value"], found.compute_16bit),
            }
        )
    for case in store.cases_of(run, "decode_attention"):
        what = case["parameters"]
        rows.append(
            {
                "phase": "decode",
                "by": what["way"],
                "size": f"batch {what['batch']} at {what['context']:,}",
                "rate": fmt.si(case["value"], "B/s"),
                "share": _share(case["value"], found.bandwidth),
            }
        )
    return rows


def _share(value: float, of: float | None) -> str:
    return fmt.percent(value / of) if of else ""
