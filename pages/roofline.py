"""Roofline: why decode is slow and prefill is not, operator by operator."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.roofline_points import Roofline, roofline_of, worked_intensity, worked_ridge
from calc.scenario import Scenario
from pages._inputs import BY_VALUE, TTL, answer_for
from pages._levers import show_unheld
from pages._roofline_details import CHART, choose_clicked, draw_details, worked_passes
from pages._roofline_figure import (
    reached_roofs,
    roofline_figure,
    roofline_finding,
    roofline_rows,
)
from pages._sidebar import current_scenario
from pages._ui import (
    Metric,
    plain_text,
    predict_first,
    show_chart,
    show_data,
    show_ignored,
    show_metrics,
    show_title,
    show_worked_maths,
)


@st.cache_resource(max_entries=32, ttl=TTL, show_spinner=False, hash_funcs=BY_VALUE)
def _roofline(scenario: Scenario) -> Roofline:
    return roofline_of(answer_for(scenario))


def main() -> None:
    """Dots under roofs, and the batch that would lift them."""
    scenario = current_scenario()
    found = _roofline(scenario)
    accelerator = found.result.inputs.offer.accelerator
    show_title(
        _headline(found),
        plain_text(
            f"One {accelerator.name} of {found.result.layout.label}; decode at batch {fmt.count(found.batch)} with "
            f"{fmt.count(found.context)} cached tokens each, prefill of {fmt.count(scenario.input_tokens)} tokens; "
            "datasheet rates, nothing else takes time."
        ),
    )
    show_unheld(found.result)
    one = found.decode_trail[0]
    predict_first(
        key="roofline",
        question="At batch 1, what share of the 16-bit peak does a decode step reach, in percent?",
        unit="%",
        answer=100 * found.alone_share,
        reading=fmt.percent(found.alone_share),
        arithmetic=[
            (
                f"{fmt.significant(one.intensity)} FLOP per byte x {fmt.si(accelerator.bandwidth_bytes_per_s, 'B/s')} = "
                f"{fmt.si(one.flop_per_s, 'FLOP/s')}, of {fmt.si(accelerator.flop_per_s_16bit.flop_per_s, 'FLOP/s')}."
            )
        ],
    )
    show_metrics(_metrics(found))
    made = roofline_figure(
        accelerator,
        found.roofs,
        decode=found.decode,
        prefill=found.prefill,
        decode_trail=found.decode_trail,
        prefill_trail=found.prefill_trail,
        reached=reached_roofs(accelerator, found.result.inputs.offer.profile),
    )
    show_chart(
        made,
        alt=roofline_finding(accelerator, found.decode, found.prefill),
        key=CHART,
        on_select=lambda: choose_clicked(found),
    )
    st.caption(
        "Click a dot, or choose it below, for its arithmetic. Attention's dots do not move with the batch: every sequence "
        "reads its own cache."
    )
    draw_details(found)
    show_worked_maths(lambda: worked_passes(found), key="roofline-maths")
    show_data(lambda: roofline_rows(found), key="roofline-data", name="ridgebeam-roofline")
    show_ignored(
        "Kernel launches, caches on the chip, and how far real kernels stay below the roofs.",
        "Messages between GPUs: they have no intensity; step time counts them.",
    )


def _headline(found: Roofline) -> str:
    decode = (
        f"Decode is memory-bound up to batch {fmt.count(found.decode_crossover)}"
        if found.decode_crossover
        else "Decode stays memory-bound at any batch"
    )
    prefill = (
        f"prefill crosses the ridge at {fmt.count(found.prefill_crossover)} tokens."
        if found.prefill_crossover
        else "prefill stays memory-bound too."
    )
    return f"{decode}; {prefill}"


def _metrics(found: Roofline) -> list[Metric]:
    ridge = next((r for r in found.roofs if r.format in {"bf16", "fp16"}), found.roofs[-1])
    decode = found.decode_shown
    crossing = "*Show the maths*, below, has the pass there."
    never = "never"
    return [
        Metric(
            label="Ridge point",
            reading=f"{fmt.significant(ridge.ridge_flop_per_byte)} FLOP/B",
            help=f"Of {ridge.format}.",
            worked=worked_ridge(ridge, found.result.inputs.offer.accelerator),
        ),
        Metric(
            label="Decode, FLOP/B",
            reading=fmt.significant(decode.intensity),
            help=f"At batch {decode.size}.",
            worked=worked_intensity(decode, ""),
        ),
        Metric(
            label="Weights cross at",
            reading=fmt.optional(found.weights_crossover, fmt.count, never),
            help="With an empty cache: the weights' arithmetic takes as long as their read. " + crossing,
        ),
        Metric(
            label="Whole step crosses at",
            reading=fmt.optional(found.decode_crossover, fmt.count, never),
            help="With the scenario's cache: it grows with the batch, and may keep memory the limit for good. "
            + crossing,
        ),
        Metric(
            label="Prefill crosses at",
            reading=fmt.optional(found.prefill_crossover, fmt.count, never),
            help="Tokens of a prompt. " + crossing,
        ),
    ]


main()
