"""Fleet: several deployments on one stock of GPUs, from a table that can be edited, pasted into or uploaded."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from calc import format as fmt
from calc.engine import ENGINE_NAMES, Engine
from calc.errors import InputError
from calc.fleet import Budget, Fleet, FleetRow, Placed, plan_fleet
from calc.fleet_report import fleet_headline
from calc.fleet_table import COLUMNS, fleet_rows, placed_rows, stocks_of
from calc.result import Answer
from calc.worked.row import worked_row
from pages._axes import KINDS, ROWS, figure, linear
from pages._drawing import Drawing
from pages._inputs import answer_for
from pages._sidebar import current_scenario
from pages._ui import (
    plain_text,
    show_chart,
    show_data,
    show_ignored,
    show_row_maths,
    show_table,
    show_title,
)
from pages._waiting import hold_until_drawn
from presets import accelerators
from presets.fleet_file import EXAMPLE, MAX_BYTES, read_fleet_text

FIRST_KINDS = ("h100-sxm5-80gb", "l40s")
MOST_KINDS = 6
BARS_PX, TABLE_PX = 336, 175  # chart and table of the example's four deployments
TEXTS = ("name", "region", "gpu", "model", "engine")  # an empty cell of these is shown empty, not as None
SHOWN = (
    "name",
    "region",
    "model",
    "rate_per_s",
    "input_tokens",
    "output_tokens",
    "ttft_s",
    "tpot_s",
    "adapters",
    "gpu",
)


def main() -> None:
    """The finding, the chart, the table of results; the table of questions below it, where it can be changed."""
    place = st.container()
    bars, table = hold_until_drawn(BARS_PX), hold_until_drawn(TABLE_PX)
    rows, budget, kinds = _questions()
    base = replace(
        current_scenario(), config_text="", gpu_json="", kv_bytes_per_gpu=None, tp=0, tpot_s=None, ttft_s=None
    )
    found = plan_fleet(fleet_rows(rows, base), _ask, kinds, budget)
    with place:
        show_title(
            fleet_headline(found),
            plain_text(
                f"{base.fidelity.capitalize()} fidelity, {ENGINE_NAMES.get(Engine(base.engine), base.engine)}, {fmt.percent(base.headroom)} headroom; every "
                "deployment at its own peak."
            ),
        )
    with bars():
        show_chart(fleet_figure(found), alt=fleet_headline(found), key="fleet-bars")
    with table():
        show_table([_row(place) for place in found.placed])
    running = {_label(place.row): place.answer for place in found.placed if place.answer is not None}
    show_row_maths(
        {name: functools.partial(worked_row, answer) for name, answer in running.items()},
        key="fleet-maths",
        of="Deployment",
    )
    show_data(lambda: placed_rows(found), key="fleet-data", name="ridgebeam-fleet")
    show_ignored(
        "Peaks at different hours: every deployment is sized for its own peak, so a pool that follows them could be smaller.",
        "Several models on one GPU at once.",
        "Adapters on routed experts, and the time to load one that is not resident.",
    )


def _ask(row: FleetRow, kind: str) -> Answer:
    return answer_for(replace(row.scenario, gpu=kind))


def _questions() -> tuple[Sequence[Mapping[str, object]], Budget, tuple[str, ...]]:
    """The table of deployments, the kinds of GPU, and what there is of them."""
    st.header("Deployments", anchor=False)
    uploaded = st.file_uploader(
        "The table below, or a CSV in its place",
        type=["csv"],
        help=f"Columns: {', '.join(COLUMNS)}.",
        key="fleet-upload",
        max_upload_size=max(1, MAX_BYTES // 1_000_000),
    )
    start: Sequence[Mapping[str, object]] = EXAMPLE
    if uploaded is not None:
        start = read_fleet_text(uploaded.getvalue().decode("utf-8-sig", errors="replace"))
    columns = [
        name for name in COLUMNS if name in SHOWN or any(row.get(name) not in (None, "") for row in start)
    ]
    grid = [
        {name: row.get(name, "") if name in TEXTS else row.get(name) for name in columns} for row in start
    ]
    edited = st.data_editor(
        grid, num_rows="dynamic", hide_index=True, key=f"fleet-grid-{hash(str(grid))}", placeholder=""
    )
    first, second, third = st.columns((2, 2, 1))
    kinds = first.multiselect(
        "GPUs for rows that name none",
        accelerators.all_ids(),
        default=list(FIRST_KINDS),
        max_selections=MOST_KINDS,
        key="fleet_gpus",
        bind="query-params",
    )
    stock = second.text_input(
        "Stock, if it is limited",
        key="fleet_stock",
        placeholder="GPU=N or REGION:GPU=N",
        help="GPU=N or REGION:GPU=N, separated by spaces. Empty: as many as wanted.",
        bind="query-params",
    )
    usd = third.number_input(
        "Budget, $ an hour", min_value=0.01, max_value=1e9, value=None, key="fleet-budget"
    )
    if not kinds:
        raise InputError("GPUs", "none", "choose at least one kind")
    for part in stocks_of(stock.split()):
        accelerators.load(part.gpu)
    return edited, Budget(stocks=stocks_of(stock.split()), usd_per_hour=usd), tuple(kinds)


def fleet_figure(found: Fleet) -> Drawing:
    """GPUs of each deployment, a bar a row, coloured by kind."""
    running = [p for p in found.placed if p.answer is not None]
    kinds = sorted(found.gpus)
    most = max((p.gpus for p in running), default=1)
    made = figure(
        height=120 + 44 * max(2, len(running)),
        showlegend=len(kinds) > 1,
        xaxis=linear(0, 1.12 * most, "GPUs"),
        yaxis=ROWS,
        hovermode="closest",
        barmode="overlay",
        bargap=0.4,
        legend={"y": -0.5},
    )
    for number, kind in enumerate(kinds):
        shown = [p for p in running if p.answer and p.answer.inputs.offer.accelerator.id == kind]
        made.add_bar(
            orientation="h",
            name=kind,
            y=[_label(p.row) for p in shown],
            x=[p.gpus for p in shown],
            text=[f"{p.gpus}" for p in shown],
            textposition="outside",
            marker={"color": KINDS[number % len(KINDS)]},
            hovertemplate="%{y}: %{x} GPUs<extra></extra>",
        )
    return made


def _label(row: FleetRow) -> str:
    return f"{row.name} ({row.region})" if row.region else row.name


def _row(place: Placed) -> dict[str, str]:
    """One line of the table of results."""
    if place.answer is None or place.answer.fleet is None:
        return {"deployment": _label(place.row), "runs on": f"left out: {place.why}"}
    found = place.answer
    return {
        "deployment": _label(place.row),
        "runs on": f"{found.gpus} x {found.inputs.offer.accelerator.name}, {found.layout.label}",
        "busy": fmt.percent(place.answer.fleet.utilization),
        "TTFT": fmt.optional(found.ttft_s, fmt.seconds),
        "TPOT": fmt.optional(found.tpot_s, fmt.seconds),
        "per hour": fmt.optional(place.usd_per_hour, fmt.usd, "no price"),
    }


main()
