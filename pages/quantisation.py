"""Quantisation: which scheme speeds up which phase here, what rounding loses, and SmoothQuant."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.engine import ENGINE_NAMES, Engine
from calc.errors import RidgebeamError
from calc.layout import Layout
from calc.quantization_speed import BATCHES, SpeedStudy, headline, speed_study, step_alone_s, worked_speedup
from calc.replica import without_traffic
from calc.result import Answer
from calc.scenario import Scenario
from calc.sized import answer_on
from pages._inputs import BY_VALUE, TTL, answer_for, inputs_for
from pages._levers import show_unheld
from pages._quantisation_figures import speed_figure, speed_finding
from pages._quantisation_parts import data_rows, draw_errors, draw_not_run, draw_smoothing, speed_rows
from pages._sidebar import current_scenario
from pages._ui import (
    Metric,
    folded,
    guarded,
    plain_text,
    predict_first,
    show_chart,
    show_data,
    show_error,
    show_ignored,
    show_metrics,
    show_title,
    show_worked,
)


@st.cache_resource(
    max_entries=16, ttl=TTL, show_spinner="Timing every format", hash_funcs=BY_VALUE | {Layout: repr}
)
def _study(asked: Scenario, layout: Layout) -> SpeedStudy:
    """Every scheme on a layout, whatever the traffic."""
    return speed_study(answer_on(inputs_for(asked), layout))


def main() -> None:
    """Speed first, from the step model; then what it costs in error."""
    scenario = current_scenario()
    try:
        found = _study(without_traffic(scenario), answer_for(scenario).layout)
    except RidgebeamError as error:  # nothing to time: the study of rounding needs no model
        show_title("Nothing can be timed for this scenario; what rounding loses can be seen all the same.")
        show_error(error)
    else:
        _draw_speed(scenario, found)
    guarded(_draw_study)()
    show_ignored(
        "What rounding does to a model's answers: measure that with the model and your own prompts.",
        "Embeddings, output head, norms and routers, which stay in 16 bit (GGUF types excepted).",
        "Search for better scales (GPTQ, AWQ, MSE clipping): the study rounds each value to its nearest.",
    )


def _draw_speed(scenario: Scenario, found: SpeedStudy) -> None:
    """The finding, the curves, the matrix, and what the card does with each scheme."""
    result = answer_for(scenario)
    accelerator = result.inputs.offer.accelerator
    show_title(
        headline(found),
        plain_text(
            f"{result.inputs.spec.id} on {result.layout.label} of {accelerator.name} under {ENGINE_NAMES.get(Engine(scenario.engine), scenario.engine)}, against 16-bit "
            f"weights and cache; {fmt.count(found.context)} cached tokens each, prompts of "
            f"{fmt.count(found.prompt_tokens)} tokens; {found.fidelity} fidelity"
            + (", as the textbook knows no formats." if found.fidelity != scenario.fidelity else ".")
        ),
    )
    show_unheld(result)
    _predict(found)
    show_metrics(_metrics(found))
    batch = result.decode.batch if result.decode else None
    show_chart(speed_figure(found, batch=batch), alt=speed_finding(found), key="quantisation-speed")
    st.caption(
        "Solid: the card computes in the format. Dashed: it reads it and multiplies in 16 bit. Dots and dashes: the cache too."
    )
    st.dataframe(speed_rows(found), hide_index=True, key="quantisation-matrix")
    st.caption(
        "Speed-ups of a decode step at each batch, and of one prompt. \\*: more sequences than fit beside the weights on this layout. "
        "-: is not run."
    )
    draw_not_run(found)
    _draw_maths(result, found)
    show_data(lambda: data_rows(found), key="quantisation-data", name="ridgebeam-quantisation")


def _draw_maths(result: Answer, found: SpeedStudy) -> None:
    """Any cell of the matrix, chosen and worked out; the fastest at batch 1 first."""
    by_name = {one.scheme.name: one for one in sorted(found.run, key=lambda one: -one.at(1))}
    if not by_name:
        return
    with folded("Show the maths", icon=":material/function:", key="quantisation-maths") as is_open:
        if not is_open:
            return
        left, right = st.columns(2)
        phases: dict[str, int | None] = {f"decode, batch {batch}": batch for batch in BATCHES} | {
            "prefill": None
        }
        scheme = left.selectbox("Scheme", list(by_name), key="quantisation-maths-of")
        phase = right.selectbox("Phase", list(phases), key="quantisation-maths-at")
        show_worked(worked_speedup(result, found, by_name[scheme], phases[phase]))


def _draw_study() -> None:
    studied = draw_errors()
    if studied is not None:
        draw_smoothing(studied)


def _predict(found: SpeedStudy) -> None:
    four = next((one for one in found.run if one.scheme.weights in {"int4-g128", "q4_k_m"}), None)
    if four is None:
        return
    predict_first(
        key="quantisation",
        question=f"{four.scheme.name} stores {fmt.significant(four.bits_per_weight)} bits per weight in place of 16. "
        "How many times faster does that make a decode step at batch 1?",
        unit="times",
        answer=four.at(1),
        reading=fmt.factor(four.at(1)),
        arithmetic=[
            (
                f"The weights shrink {fmt.factor(four.shrink)}; a step of {fmt.seconds(found.base_s[0])} becomes "
                f"{fmt.seconds(step_alone_s(found, four))}. What does not shrink (cache, activations, overhead, lower "
                "reached bandwidth) keeps the rest."
            )
        ],
    )


def _metrics(found: SpeedStudy) -> list[Metric]:
    best = max(found.run, key=lambda one: one.at(1), default=None)
    large = max(found.run, key=lambda one: one.at(512), default=None)
    prefill = max(found.run, key=lambda one: one.prefill or 0.0, default=None)
    smallest = min(found.run, key=lambda one: one.weight_bytes, default=None)
    if best is None or large is None or prefill is None or smallest is None:
        return []
    maths = "*Show the maths*, below, works any of them out."
    return [
        Metric(
            label="Decode, batch 1",
            reading=fmt.factor(best.at(1)),
            help=f"With {best.scheme.name}. {maths}",
        ),
        Metric(
            label="Decode, batch 512",
            reading=fmt.factor(large.at(512)),
            help=f"With {large.scheme.name}. {maths}",
        ),
        Metric(
            label="Prefill",
            reading=fmt.optional(prefill.prefill, fmt.factor),
            help=f"With {prefill.scheme.name}. {maths}",
        ),
        Metric(
            label="Weights freed, most",
            reading=fmt.binary_bytes(smallest.freed_bytes),
            help=f"With {smallest.scheme.name}, over the whole replica: 16 bit less "
            f"{fmt.significant(smallest.bits_per_weight)} bits of each weight.",
        ),
        Metric(
            label="Sequences",
            reading=f"{fmt.count(found.base_sequences)} to {fmt.count(max(one.sequences for one in found.run))}",
            help="That fit beside the weights on this layout: in 16 bit, and with the smallest scheme; step 2 of "
            "*Size a deployment* counts them.",
        ),
    ]


main()
