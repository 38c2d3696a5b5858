"""The Gantt chart of *Scheduler* and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calc import format as fmt
from calc.schedule import Activity, Bar, Lane, Schedule
from pages._axes import COLOURS, FAINT, GREY, LABEL_SIZE, figure, linear
from pages._drawing import Drawing

ROW_PX = 22
INK = "#10212B"  # on bars and on the stall's light label, in both themes
BELOW_PX = 78  # the time axis and the legend
GAP_ROWS = 1.7  # between two schedulers, where the name of the lower one stands
LOOKS = {
    Activity.PREFILL: ("prefill", ""),
    Activity.TRANSFER: ("link", ""),
    Activity.DECODE: ("decode", ""),
    Activity.HOLD: ("card", "."),
    Activity.PADDING: ("card", "/"),
}
SHADES = (1.0, 0.72)  # neighbours in a slot are told apart
MOST_NUMBERED = 60  # requests; beyond it their numbers would not be read


@dataclass(frozen=True, slots=True)
class Band:
    """The rows of one lane of one scheduler; the first lane carries the scheduler's name."""

    one: Schedule
    lane: Lane
    top: float
    rows: int

    @property
    def named(self) -> bool:
        return self.lane is self.one.lanes[0][0]


def gantt_figure(schedules: Sequence[Schedule], until_s: float | None = None) -> Drawing:
    """A row per slot, a bar per stretch of a request; grey is idle. `until_s`: what had happened by then."""
    end_s = max(one.end_s for one in schedules)
    bands, rows = _bands(schedules)
    made = figure(
        height=round(BELOW_PX + ROW_PX * (rows + GAP_ROWS)),
        top=8,
        barmode="overlay",
        bargap=0,
        hovermode="closest",
        uniformtext={"minsize": 9, "mode": "hide"},
        xaxis=linear(0, 1.005 * end_s, "seconds") | {"showgrid": False},
        yaxis={"range": [rows - 0.2, -GAP_ROWS], "visible": False},
        legend={"yref": "container", "y": 0, "yanchor": "bottom", "traceorder": "normal"},
        margin={"b": BELOW_PX},
    )
    for band in bands:
        _draw_ground(made, band)
    for activity in Activity:
        _draw_bars(made, bands, activity, until_s)
    for band in bands:
        _mark_stall(made, band, until_s)
    if until_s is not None and until_s < end_s:
        now = {"color": COLOURS["kv wall"], "width": 2}
        made.add_shape(type="line", x0=until_s, x1=until_s, y0=0, y1=1, xref="x", yref="paper", line=now)
    return made


def _bands(schedules: Sequence[Schedule]) -> tuple[list[Band], float]:
    """Lanes from the top down, and the row after the last."""
    bands: list[Band] = []
    row = 0.0
    for one in schedules:
        for lane, rows in one.lanes:
            bands.append(Band(one, lane, row, rows))
            row += rows + GAP_ROWS
    return bands, row - GAP_ROWS


def _draw_ground(made: Drawing, band: Band) -> None:
    """Idle slots up to the scheduler's end, and what the rows are above them."""
    one = band.one
    made.add_shape(
        type="rect",
        x0=0,
        x1=one.end_s,
        y0=band.top - 0.5,
        y1=band.top + band.rows - 0.5,
        layer="below",
        line={"width": 0},
        fillcolor=COLOURS["free"],
    )
    name = f"<b>{one.scheduling}</b>: {fmt.percent(one.slot_use)} used, {fmt.seconds(one.end_s)}"
    lane = "" if band.lane is Lane.SLOTS else str(band.lane)
    made.add_annotation(
        x=0,
        y=band.top - 0.5,
        xanchor="left",
        yanchor="bottom",
        showarrow=False,
        text="; ".join(part for part in (name if band.named else "", lane) if part),
        font={"size": LABEL_SIZE + 1},
    )


def _mark_stall(made: Drawing, band: Band, until_s: float | None) -> None:
    """A frame around the time in which running answers stood still, where one pass in between was long."""
    stall = band.one.stall
    answers = band.lane in (Lane.SLOTS, Lane.DECODE)
    if stall is None or not answers or not band.one.stalls:
        return
    if until_s is not None and stall.end_s > until_s:
        return
    frame = {"color": COLOURS["target"], "width": 2}
    ends = {"x0": stall.start_s, "x1": stall.end_s, "y0": band.top - 0.5, "y1": band.top + band.rows - 0.5}
    made.add_shape(type="rect", line=frame, **ends)
    made.add_annotation(
        x=stall.end_s,
        y=band.top - 0.5,
        xanchor="left",
        yanchor="top",
        showarrow=False,
        text=f"stall {fmt.seconds(stall.seconds)}",
        font={"size": LABEL_SIZE, "color": INK},
        bgcolor="rgba(255,255,255,0.85)",
    )


def _draw_bars(made: Drawing, bands: Sequence[Band], activity: Activity, until_s: float | None) -> None:
    drawn: list[tuple[Bar, Band]] = [
        (bar, band)
        for band in bands
        for bar in band.one.bars
        if bar.lane is band.lane and bar.activity is activity and (until_s is None or bar.start_s < until_s)
    ]
    if not drawn:
        return
    colour, pattern = LOOKS[activity]
    ends = [bar.end_s if until_s is None else min(bar.end_s, until_s) for bar, _ in drawn]
    numbered = activity is Activity.DECODE and len(bands[0].one.result) <= MOST_NUMBERED
    made.add_bar(
        name=str(activity),
        orientation="h",
        base=[bar.start_s for bar, _ in drawn],
        x=[end - bar.start_s for end, (bar, _) in zip(ends, drawn, strict=True)],
        y=[band.top + bar.slot for bar, band in drawn],
        width=0.86,
        marker={
            "color": COLOURS[colour],
            "opacity": [SHADES[bar.request % 2] for bar, _ in drawn],
            "pattern": {"shape": pattern, "fgcolor": GREY, "size": 6},
            "line": {"color": FAINT, "width": 1},
        },
        text=[str(bar.request + 1) for bar, _ in drawn] if numbered else None,
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        textfont={"color": INK},
        customdata=[bar_words(bar, band.one) for bar, band in drawn],
        hovertemplate="%{customdata}<extra></extra>",
    )


def bar_words(bar: Bar, one: Schedule) -> str:
    """One bar in words."""
    result, request = one.result, bar.request
    waited = fmt.seconds(float(result.scheduled_s[request] - result.arrival_s[request]))
    return (
        f"{one.scheduling}, {bar.lane}, row {bar.slot + 1}: request {request + 1}, {bar.activity}<br>"
        f"{fmt.seconds(bar.start_s)} to {fmt.seconds(bar.end_s)}, {fmt.plural(bar.passes, 'pass', 'passes')}<br>"
        f"{fmt.count(result.input_tokens[request])} tokens in, {fmt.count(result.output_tokens[request])} out; waited {waited}"
    )


def gantt_finding(schedules: Sequence[Schedule]) -> str:
    """What the bars show."""
    each = "; ".join(
        f"{one.scheduling} uses {fmt.percent(one.slot_use)} of its slot-steps and is done after {fmt.seconds(one.end_s)}"
        for one in schedules
    )
    return f"{fmt.plural(len(schedules[0].result), 'request')} on {fmt.plural(schedules[0].slots, 'slot')}: {each}."
