"""How sure the answer is: a tornado of what was assumed, worked out when its row is opened."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.result import Answer
from calc.scenario import Scenario
from calc.sensitivity import Reading, Sensitivity, Swing, headline_of, sensitivity
from pages._axes import COLOURS, Mark, figure, linear, vline
from pages._drawing import Drawing
from pages._inputs import BY_VALUE, TTL, answer_for
from pages._ui import guarded, plain_text, show_chart, show_table

ROW_HEIGHT = 46
MARGIN = 110  # pixels above and below the bars
WIDEST = 4.0  # times the answer; a bar beyond is cut at the edge, and the table says how far it goes


@st.cache_resource(max_entries=32, ttl=TTL, show_spinner=False, hash_funcs=BY_VALUE)
def sensitivity_for(scenario: Scenario) -> Sensitivity:
    """The tornado of the scenario's answer."""
    return sensitivity(answer_for(scenario))


def draw_sensitivity(result: Answer) -> None:
    """The row under the answer; closed until somebody asks."""
    row = st.expander(
        "**8** How sure is this? Every assumption at both ends", key="step-sensitivity", on_change="rerun"
    )
    if row.open:
        with row:
            guarded(lambda: _draw(sensitivity_for(result.inputs.scenario)))()


def _draw(found: Sensitivity) -> None:
    st.markdown(f"**{plain_text(headline_of(found))}**")
    show_chart(tornado_figure(found), alt=tornado_finding(found), key="sensitivity")
    show_table([_row(swing) for swing in found.swings])
    worst = (
        "one of them stops it from working"
        if found.all_at_once is None
        else fmt.plural(found.all_at_once, "GPU")
    )
    dollars = ""
    if found.usd_per_hour is not None:
        low, high = found.usd_per_hour
        dollars = f" In money: {fmt.usd(low)} to {fmt.usd(high)} an hour."
    st.caption(
        "Range over all: independent errors, added in squares of their logarithms; parts of the step model are shown "
        + plain_text(f"and not added again.{dollars} Everything at its worse end at once: {worst}.")
    )


def tornado_figure(found: Sensitivity) -> Drawing:
    """A bar per assumption from the GPUs at one end to those at the other, widest on top; whole replicas are grid lines."""
    shown = [s for s in reversed(found.swings) if s.width > 0 and s.low.fits | s.high.fits]
    now = found.now.gpus_of_work
    ends = [end.gpus_of_work for s in shown for end in (s.low, s.high) if end.fits]
    high = min(max([now, found.gpus_of_work.high, *ends]) * 1.08, WIDEST * now)
    made = figure(
        height=MARGIN + ROW_HEIGHT * max(3, len(shown)),
        showlegend=False,
        top=44,
        hovermode="closest",
        barmode="overlay",
        bargap=0.55,
        xaxis=linear(0.0, high, "GPUs of work with headroom; the answer rounds up"),
        yaxis={"showticklabels": False, "showgrid": False},
    )
    for name, side in (("low", COLOURS["prefill"]), ("high", COLOURS["decode"])):
        readings: list[Reading] = [getattr(s, name) for s in shown]
        made.add_bar(
            orientation="h",
            y=[label_of(s) for s in shown],
            base=[now] * len(shown),
            x=[(r.gpus_of_work if r.fits else high) - now for r in readings],
            marker={"color": side},
            name=f"at the {name} end",
            customdata=[
                f"{getattr(s.assumption, f'{name}_text')}: {_reading(r)}"
                for s, r in zip(shown, readings, strict=True)
            ],
            hovertemplate="%{y}, %{customdata}<extra></extra>",
        )
    for swing in shown:  # above its bar, so that a phone's width is left to the bars
        made.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=label_of(swing),
            yshift=18,
            text=label_of(swing).strip(),
            showarrow=False,
            font={"size": 12},
        )
    vline(made, Mark(at=now, text=f"now: {fmt.plural(found.now.gpus, 'GPU')}", colour="main", dash="dot"))
    return made


def tornado_finding(found: Sensitivity) -> str:
    """The three widest swings in words."""
    top = [s for s in found.swings if not s.assumption.part_of][:3]
    parts = [
        f"{s.assumption.name} from {s.assumption.low_text} to {s.assumption.high_text}: {_reading(s.low)} to {_reading(s.high)}"
        for s in top
    ]
    return f"{headline_of(found)} Widest: {'; '.join(parts)}."


def label_of(swing: Swing) -> str:
    """The assumption's name; parts of another one are set in."""
    return f"  ({swing.assumption.name})" if swing.assumption.part_of else swing.assumption.name


def _reading(reading: Reading) -> str:
    return fmt.plural(reading.gpus, "GPU") if reading.fits else f"does not work ({reading.wall})"


def _row(swing: Swing) -> dict[str, str]:
    assumption = swing.assumption
    return {
        "assumption": assumption.name
        + (f" (part of the {assumption.part_of})" if assumption.part_of else ""),
        "now": assumption.now,
        "from": f"{assumption.low_text}: {_reading(swing.low)}",
        "to": f"{assumption.high_text}: {_reading(swing.high)}",
        "why this range": assumption.why,
    }
