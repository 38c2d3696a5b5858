"""Accuracy: how wrong the predictions are on public measurements, the misses first."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from calc import format as fmt
from calc.worked.measured import worked_errors
from pages._accuracy_figure import finding, scatter
from pages._ui import (
    show_chart,
    show_data,
    show_ignored,
    show_side_by_side,
    show_table,
    show_title,
    show_worked_maths,
)
from presets import accuracy, engine_memory
from presets.accuracy import Comparison

CLASSES = {"dense": "dense", "experts": "experts", "latent": "latent attention"}
PROTOCOLS = {
    "group held out": "each model, GPU and engine in turn",
    "GPU held out": "each GPU in turn",
    "model held out": "each model in turn",
}
EVERY = "all"
FURTHEST = 12  # points listed by themselves


@st.cache_resource(show_spinner="Predicting every bundled measurement")
def all_comparisons() -> tuple[Comparison, ...]:
    """Every measurement beside its prediction; worked out once per server."""
    return accuracy.comparisons()


def main() -> None:
    """Errors on data that the fit did not see, then the scatter, then groups with the worst first."""
    report = accuracy.held_out()
    whole = report["group held out"]["all"]
    worst = max(report["group held out, each"].items(), key=lambda item: item[1]["mean"])
    show_title(
        f"TPOT is within {fmt.percent(whole['mean'])} on {fmt.count(whole['points'])} public points that were not "
        f"fitted; worst: {worst[0].replace('|', ', ')} at {fmt.percent(worst[1]['mean'])}.",
        "Mean error; copies of a measurement counted once. Points and groups below are predicted by the shipped "
        "profiles, which were fitted on most of them.",
    )
    show_side_by_side([_protocol_row(report, name, text) for name, text in PROTOCOLS.items()])
    rows = all_comparisons()
    chosen = _filtered(rows)
    if chosen:
        quantity, unit = chosen[0].quantity, chosen[0].unit
        show_chart(scatter(chosen, unit=unit), alt=finding(chosen, quantity), key="accuracy-scatter")
        st.header("Error by group, the worst first", anchor=False)
        st.dataframe(_group_rows(chosen), hide_index=True)
        st.header("The furthest points", anchor=False)
        st.dataframe(_furthest_rows(chosen, unit), hide_index=True)
        show_worked_maths(
            lambda: worked_errors(
                [(row.best, row.measured, f"{row.group}, {row.note}") for row in chosen],
                inside=sum(row.inside for row in chosen),
            ),
            key="accuracy-maths",
        )
        show_data(lambda: [row.as_json() for row in chosen], key="accuracy-data", name="ridgebeam-accuracy")
    else:
        st.info("No measurement matches these filters.", icon=":material/filter_alt_off:")
    _draw_memory()
    show_ignored(
        *accuracy.unmodelled(),
        "Rows marked as not clean (cache exhausted, speculation, slow hosts) are left out unless asked for.",
        "Public measurements do not record everything: cache formats and prompt lengths are partly inferred.",
    )


def _protocol_row(report: dict[str, dict[str, dict[str, float]]], name: str, text: str) -> dict[str, str]:
    errors = report[name]
    return {
        "left out of the fit": text,
        **{label: fmt.percent(errors[kind]["mean"]) for kind, label in CLASSES.items()},
        "90% within": fmt.percent(errors["all"]["p90"]),
    }


def _filtered(rows: Sequence[Comparison]) -> list[Comparison]:
    """The rows that the boxes above the chart choose."""
    with st.container(horizontal=True):
        quantity = st.selectbox("Quantity", sorted({row.quantity for row in rows}), key="acc-quantity")
        engine = st.selectbox("Engine", [EVERY, *sorted({row.engine for row in rows})], key="acc-engine")
        gpu = st.selectbox("Accelerator", [EVERY, *sorted({row.accelerator for row in rows})], key="acc-gpu")
        model = st.selectbox("Model", [EVERY, *sorted({row.model for row in rows})], key="acc-model")
    with_odd = st.toggle(
        "Also rows that are not clean", key="acc-odd", help="Each says what is wrong with it."
    )
    return [
        row
        for row in rows
        if row.quantity == quantity
        and (with_odd or row.clean)
        and engine in {EVERY, row.engine}
        and gpu in {EVERY, row.accelerator}
        and model in {EVERY, row.model}
    ]


def _group_rows(rows: Sequence[Comparison]) -> list[dict[str, object]]:
    return [
        {
            "mean error, %": round(100 * float(str(group["mean_error"])), 1),
            "bias, %": round(100 * float(str(group["bias"])), 1),
            "in range, %": round(100 * float(str(group["inside"]))),
            "points": group["points"],
            "group": group["group"],
        }
        for group in accuracy.by_group(rows)
    ]


def _furthest_rows(rows: Sequence[Comparison], unit: str) -> list[dict[str, object]]:
    """The points whose prediction is the largest factor away from the measurement, either way."""
    scale, shown = (1e3, "ms") if unit == "s" else (1.0, unit)
    return [
        {
            "error, %": round(100 * row.error),
            f"measured, {shown}": float(f"{scale * row.measured:.3g}"),
            f"predicted, {shown}": float(f"{scale * row.best:.3g}"),
            "in range": row.inside,
            "group": row.group,
            "configuration": row.note,
            "stands on": row.evidence,
        }
        for row in accuracy.furthest(rows, FURTHEST)
    ]


def _draw_memory() -> None:
    """Engines' start-up logs against the ledgers."""
    st.header("Engine memory on public start-up logs", anchor=False)
    show_table(
        [
            {
                "check": found.check.replace("kv", "KV"),
                "group": found.group,
                "logs": fmt.count(found.rows),
                "median error": fmt.percent(found.median),
                "90% within": fmt.percent(found.p90),
                "worst": fmt.percent(found.largest),
            }
            for found in engine_memory.group_errors()
        ]
    )


main()
