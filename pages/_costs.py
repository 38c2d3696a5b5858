"""What the plan costs: by tenure, against an API, over a day; worked out when its row is opened."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import streamlit as st

from calc import format as fmt
from calc.bill import ApiPrices, Bill, Day, DayBill, Market, Owned, Tenure, bill_of
from calc.bill_report import bill_headline, day_headline
from calc.result import Answer
from calc.units import GB
from calc.worked.bill import worked_beside_the_tenures, worked_tenure
from calc.worked.formula import Worked
from pages._axes import COLOURS, GREY, LINE_WIDTH, figure, linear
from pages._drawing import Drawing
from pages._ui import guarded, plain_text, show_chart, show_row_maths, show_table

HOURS = 24
HEADROOM = 1.15  # of the axis over the largest capacity


def draw_costs(result: Answer) -> None:
    """The row under the answer; closed until somebody asks."""
    row = st.expander(
        "**9** What it costs: rented, reserved, spot, owned, beside an API, over a day",
        key="step-costs",
        on_change="rerun",
    )
    if row.open:
        with row:
            guarded(lambda: _draw(result))()


def _draw(result: Answer) -> None:
    market = _market()
    bill = bill_of(result, market)
    st.markdown(f"**{plain_text(bill_headline(bill))}**")
    if bill.tenures:
        show_table([_row(tenure) for tenure in bill.tenures])
        st.caption(
            "Input, cached and output prices together pay for the fleet: prefill by the prompts it computes, decoding by "
            "outputs, and what decoding reads from the cache by whose tokens they are."
        )
    if bill.day is not None:
        st.markdown(f"**{plain_text(day_headline(bill.day))}**")
        show_chart(day_figure(bill.day), alt=day_headline(bill.day), key="cost-day")
    _draw_energy(bill)
    rows: dict[str, Callable[[], Sequence[Worked]]] = {
        tenure.name: functools.partial(worked_tenure, result, market, bill, tenure) for tenure in bill.tenures
    }
    if bill.tenures:
        rows["the API, a day and the energy"] = lambda: worked_beside_the_tenures(result, market, bill)
    show_row_maths(rows, key="costs-maths", of="Tenure")


def _draw_energy(bill: Bill) -> None:
    if bill.kilowatts is None or bill.joules_per_token is None or bill.watts_per_gpu is None:
        st.caption("No power limit of this accelerator is published, so there is no energy.")
        return
    st.caption(
        f"Energy of the GPUs at peak: {fmt.plain(bill.kilowatts, 'kW')}, {fmt.plain(bill.watts_per_gpu, 'W')} each, "
        f"{fmt.plain(bill.joules_per_token, 'J')} per output token. Decoding draws 20% to 70% of the power limit, prompts "
        "70% to all of it, waiting 8% to 20%; host and cooling come on top."
    )


def _market() -> Market:
    """Prices as typed; an empty box is not on offer."""
    first, second = st.columns(4), st.columns(4)
    reserved = _price(first[0], "Reserved, $ per GPU hour", "cost-reserved")
    spot = _price(first[1], "Spot, $ per GPU hour", "cost-spot")
    purchase = _price(
        first[2], "Purchase, $ per GPU", "cost-purchase", "With its share of server and network."
    )
    peak = first[3].number_input("Peak over the day's mean", 1.0, 20.0, 2.0, 0.1, key="cost-peak")
    api_in = _price(second[0], "API, $ per million input", "cost-api-in")
    api_out = _price(second[1], "API, $ per million output", "cost-api-out")
    api_cached = _price(second[2], "API, $ per million cached", "cost-api-cached")
    speed = second[3].number_input("Weights load at, GB/s per GPU", 0.05, 100.0, 2.0, 0.5, key="cost-read")
    api = None
    if api_in is not None and api_out is not None:
        api = ApiPrices(
            input_usd_per_million=api_in, output_usd_per_million=api_out, cached_usd_per_million=api_cached
        )
    return Market(
        reserved_usd=reserved,
        spot_usd=spot,
        owned=None if purchase is None else Owned(purchase_usd=purchase),
        api=api,
        day=Day(peak_factor=float(peak), read_bytes_per_s=float(speed) * GB),
    )


def _price(place: st.delta_generator.DeltaGenerator, label: str, key: str, text: str = "") -> float | None:
    typed = place.number_input(
        label, min_value=0.0001, max_value=1e7, value=None, key=key, help=text or None, format="%.4g"
    )
    return None if typed is None else float(typed)


def _row(tenure: Tenure) -> dict[str, str]:
    prices = tenure.prices
    return {
        "tenure": tenure.name,
        "per GPU hour": fmt.usd(tenure.usd_per_gpu_hour),
        "per hour": fmt.usd(tenure.usd_per_hour),
        "per month": fmt.usd(tenure.usd_per_month),
        "per request": fmt.usd(tenure.usd_per_request),
        "million input": fmt.usd(float(prices.input_usd_per_million)),
        "million cached": fmt.usd(float(prices.cached_usd_per_million)),
        "million output": fmt.usd(float(prices.output_usd_per_million)),
        "price": tenure.note,
    }


def day_figure(day: DayBill) -> Drawing:
    """Requests per second over a day, beside what the fixed fleet and the following one can serve."""
    hours = np.arange(day.rates_per_s.size) * HOURS / day.rates_per_s.size
    most = np.concatenate((day.fixed.paid, day.following.paid))
    top = HEADROOM * float(day.capacity_per_s(most).max())
    made = figure(
        height=320,
        xaxis=linear(0, HOURS, "hour of the day") | {"dtick": 4},
        yaxis=linear(0, top, "requests/s"),
    )
    lines = (
        ("requests", day.rates_per_s, COLOURS["main"], "solid", "linear"),
        ("fixed fleet", day.capacity_per_s(day.fixed.ready), GREY, "dash", "hv"),
        (
            "following fleet, ready",
            day.capacity_per_s(day.following.ready),
            COLOURS["fits"],
            "solid",
            "hv",
        ),
        ("following fleet, paid", day.capacity_per_s(day.following.paid), COLOURS["kv"], "dot", "hv"),
    )
    for name, values, colour, dash, shape in lines:
        made.add_scatter(
            x=hours,
            y=values,
            name=name,
            mode="lines",
            line={"color": colour, "width": LINE_WIDTH, "dash": dash, "shape": shape},
            hovertemplate="%{y:.3~g}",
        )
    return made
