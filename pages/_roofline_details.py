"""A dot of the roofline, clicked or chosen with the keyboard, and the arithmetic of its time."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from calc import format as fmt
from calc.operators import ForwardPass
from calc.replica_model import replica_model
from calc.roofline_points import (
    OperatorPoint,
    Roofline,
    worked_crossings,
    worked_intensity,
    worked_point,
)
from calc.scenario import Fidelity
from calc.worked.formula import Worked
from calc.worked.forward_pass import WorkedPass
from pages._roofline_figure import describe, phases_of
from pages._ui import clicked, plain_text, show_worked

CHART, CHOSEN = "roofline-chart", "roofline-dot"


def _dots(found: Roofline) -> dict[str, tuple[str, OperatorPoint]]:
    """Every dot by the name that the select box shows: its phase and its point."""
    return {
        f"{phase}: {p.name} ({p.group})": (phase, p) for phase, points in phases_of(found) for p in points
    }


def choose_clicked(found: Roofline) -> None:
    """A click on a dot chooses it in the select box, which is the way with the keyboard."""
    words = clicked(CHART)
    chosen = next((name for name, (_, point) in _dots(found).items() if describe(point) == words), None)
    if chosen is not None:
        st.session_state[CHOSEN] = chosen


def draw_details(found: Roofline) -> None:
    """The arithmetic of the operator that was clicked or chosen."""
    by_name = _dots(found)
    if st.session_state.get(CHOSEN) not in by_name:
        st.session_state.pop(CHOSEN, None)
    chosen = st.selectbox(
        "An operator's maths", list(by_name), index=None, placeholder="choose a dot", key=CHOSEN
    )
    if not chosen:
        return
    phase, point = by_name[chosen]
    with st.container(border=True):
        st.markdown(plain_text(describe(point)))
        st.markdown("**At the datasheet's peaks**")
        show_worked(worked_point(point, found.result.inputs.offer.accelerator))
        expected = _expected(found, phase, point)
        if expected:
            reached = fmt.seconds(expected[-1].result)
            st.markdown(
                f"**With what kernels reach: {reached}, {fmt.factor(expected[-1].result / point.seconds)} the bound**"
            )
            show_worked([replace(line, about="") for line in expected])


def _expected(found: Roofline, phase: str, point: OperatorPoint) -> tuple[Worked, ...]:
    """The same operator under the profile; nothing where there is none."""
    if found.result.inputs.offer.profile is None:
        return ()
    step = (
        ForwardPass.decode(float(found.batch), found.context)
        if phase == "decode"
        else ForwardPass.prefill(found.result.inputs.scenario.input_tokens)
    )
    model = replica_model(found.result.inputs, found.result.layout, fidelity=Fidelity.EXPECTED)
    worked = WorkedPass(model=model, step=step)
    row = worked.row_named(point.name, point.group)
    return () if row is None else worked.operator(row)


def worked_passes(found: Roofline) -> list[Worked]:
    """The ridge, the decode step's intensity and rate, and each crossing as the intensity of the pass that meets the ridge."""
    accelerator = found.result.inputs.offer.accelerator
    peak, bandwidth = accelerator.flop_per_s_16bit.flop_per_s, accelerator.bandwidth_bytes_per_s
    decode = found.decode_shown
    ridge = {"peak_flop_per_s": peak, "bandwidth_bytes_per_s": bandwidth}
    return [
        Worked(formula="ridge_flop_per_byte", inputs=ridge, result=peak / bandwidth),
        worked_intensity(decode, f"a decode step at batch {decode.size}"),
        Worked(
            formula="attainable_flop_per_s",
            inputs=ridge | {"intensity_flop_per_byte": decode.intensity},
            result=min(peak, decode.intensity * bandwidth),
            about=f"a decode step at batch {decode.size}",
        ),
        *worked_crossings(found),
    ]
