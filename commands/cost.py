"""`ridgebeam cost`: what a plan costs by tenure, against an API, over a day that rises and falls, and in energy."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from commands.arguments import (
    INFEASIBLE,
    OK,
    add_planned,
    emit,
    not_negative,
    planned,
    positive,
    verb,
)

if TYPE_CHECKING:
    from calc.bill import Market


def add(verbs: Any) -> None:
    parser = verb(verbs, "cost", run, "what a plan costs: tenures, an API beside it, a day, energy")
    add_planned(parser)
    prices = parser.add_argument_group("prices, USD per GPU hour")
    prices.add_argument("--usd-per-gpu-hour", type=positive, help="on demand; default: the dated catalogue")
    prices.add_argument("--reserved-usd", type=positive)
    prices.add_argument("--spot-usd", type=positive)
    prices.add_argument("--interruptions-per-day", type=not_negative, default=1.0, help="of spot capacity")
    owned = parser.add_argument_group("owned")
    owned.add_argument("--purchase-usd", type=positive, help="one GPU with its share of the server")
    owned.add_argument("--years", type=positive, default=4.0)
    owned.add_argument("--usd-per-kwh", type=not_negative, default=0.12)
    owned.add_argument(
        "--overhead-factor", type=positive, default=1.5, help="watts at the meter over the GPU's"
    )
    api = parser.add_argument_group("an API beside it, USD per million tokens")
    api.add_argument("--api-input", type=not_negative)
    api.add_argument("--api-output", type=not_negative)
    api.add_argument("--api-cached", type=not_negative, help="default: as other input")
    day = parser.add_argument_group("a day")
    day.add_argument("--day-peak", type=positive, default=2.0, help="peak over mean; --rate is the peak")
    day.add_argument("--read-gb-per-s", type=positive, default=2.0, help="disk or network of one GPU")
    day.add_argument("--provision-s", type=not_negative, default=120.0)
    day.add_argument("--warm-up-s", type=not_negative, default=60.0)
    day.add_argument("--hold-s", type=not_negative, default=300.0, help="before a replica is given up")
    day.add_argument("--requests-per-user-day", type=positive)


def run(arguments: argparse.Namespace) -> int:
    from calc.bill import bill_of
    from calc.bill_report import bill_headline, bill_json, day_headline
    from calc.contract import plan_json
    from calc.result import headline

    result = planned(arguments, "cost")
    if not result.verdict.fits:
        emit(arguments, {"plan": plan_json(result), "bill": None}, [headline(result)])
        return INFEASIBLE
    bill = bill_of(result, _market(arguments))
    lines = [headline(result), bill_headline(bill)]
    lines += [_line(tenure) for tenure in bill.tenures]
    if bill.day is not None:
        lines.append(day_headline(bill.day))
    if bill.kilowatts is not None and bill.joules_per_token is not None:
        from calc import format as fmt

        power, each = fmt.plain(bill.kilowatts, "kW"), fmt.plain(bill.joules_per_token, "J")
        lines.append(f"GPUs draw {power}; {each} per output token")
    emit(arguments, {"plan": plan_json(result), "bill": bill_json(bill)}, lines)
    return OK


def _line(tenure: Any) -> str:
    from calc import format as fmt

    prices = tenure.prices
    each = ", ".join(
        f"{name} {fmt.usd(float(value))}"
        for name, value in (
            ("input", prices.input_usd_per_million),
            ("cached", prices.cached_usd_per_million),
            ("output", prices.output_usd_per_million),
        )
    )
    return f"  {tenure.name}: {fmt.usd(tenure.usd_per_hour)} an hour, {fmt.usd(tenure.usd_per_month)} a month; per million tokens: {each}"


def _market(arguments: argparse.Namespace) -> Market:
    """Prices and use as the arguments state them."""
    from calc.bill import ApiPrices, Day, Market, Owned
    from calc.errors import InputError
    from calc.units import GB

    if (arguments.api_input is None) != (arguments.api_output is None):
        raise InputError("api", "one price", "an API needs --api-input and --api-output")
    return Market(
        reserved_usd=arguments.reserved_usd,
        spot_usd=arguments.spot_usd,
        spot_interruptions_per_day=arguments.interruptions_per_day,
        owned=None
        if arguments.purchase_usd is None
        else Owned(
            purchase_usd=arguments.purchase_usd,
            years=arguments.years,
            usd_per_kwh=arguments.usd_per_kwh,
            overhead_factor=arguments.overhead_factor,
        ),
        api=None
        if arguments.api_input is None
        else ApiPrices(
            input_usd_per_million=arguments.api_input,
            output_usd_per_million=arguments.api_output,
            cached_usd_per_million=arguments.api_cached,
        ),
        requests_per_user_day=arguments.requests_per_user_day,
        day=Day(
            peak_factor=arguments.day_peak,
            read_bytes_per_s=arguments.read_gb_per_s * GB,
            provision_s=arguments.provision_s,
            warm_up_s=arguments.warm_up_s,
            hold_s=arguments.hold_s,
        ),
    )
