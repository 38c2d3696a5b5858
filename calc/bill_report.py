"""A bill in words and as JSON, for pages, the command line and the report."""

from __future__ import annotations

from calc import format as fmt
from calc.bill import Bill, DayBill, Tenure
from calc.provenance import Estimate


def bill_headline(bill: Bill) -> str:
    """What it costs, in one sentence or two."""
    if not bill.tenures:
        return "No price is known: type one."
    best = min(bill.tenures, key=lambda t: t.usd_per_hour)
    text = (
        f"{fmt.usd(best.usd_per_month)} a month {best.name}: {fmt.usd(best.usd_per_million_output)} per million output "
        f"tokens, {fmt.usd(best.usd_per_request)} per request."
    )
    if bill.api is None:
        return text
    if bill.api.break_even_per_s is None:
        return f"{text} The API is cheaper at any traffic: even a full replica costs {fmt.usd(bill.api.full_replica_usd_per_request)} per request."
    rate = fmt.plain(bill.api.break_even_per_s, "requests/s")
    return f"{text} From {rate} on it beats the API's {fmt.usd(bill.api.usd_per_request)} per request."


def day_headline(day: DayBill) -> str:
    """What a fleet that follows the day saves, and whom it fails."""
    late = fmt.percent(day.following.beyond_capacity_share)
    return (
        f"Following the day costs {fmt.usd(day.following_usd)} instead of {fmt.usd(day.fixed_usd)} a day "
        f"({fmt.percent(day.saved_share)} less); a replica starts in {fmt.seconds(day.start_s)}, and {late} of the "
        "requests come while too few are ready."
    )


def bill_json(bill: Bill) -> dict[str, object]:
    """The record of verb `cost`."""
    return {
        "tenures": [_tenure_json(tenure) for tenure in bill.tenures],
        "api": None
        if bill.api is None
        else {
            "usd_per_request": bill.api.usd_per_request,
            "usd_per_month": bill.api.usd_per_month,
            "break_even_per_s": bill.api.break_even_per_s,
            "full_replica_usd_per_request": bill.api.full_replica_usd_per_request,
        },
        "day": None if bill.day is None else _day_json(bill.day),
        "watts_per_gpu": _range(bill.watts_per_gpu),
        "kilowatts": _range(bill.kilowatts),
        "joules_per_output_token": _range(bill.joules_per_token),
        "users": bill.users,
    }


def _range(value: Estimate | None) -> dict[str, float] | None:
    return None if value is None else value.as_json()


def _tenure_json(tenure: Tenure) -> dict[str, object]:
    return {
        "tenure": tenure.name,
        "usd_per_gpu_hour": tenure.usd_per_gpu_hour,
        "usd_per_hour": tenure.usd_per_hour,
        "usd_per_month": tenure.usd_per_month,
        "usd_per_mtok_out_alone": tenure.usd_per_million_output,
        "usd_per_mtok": {
            "input": float(tenure.prices.input_usd_per_million),
            "cached": float(tenure.prices.cached_usd_per_million),
            "output": float(tenure.prices.output_usd_per_million),
        },
        "usd_per_request": tenure.usd_per_request,
        "usd_per_user_month": tenure.usd_per_user_month,
        "note": tenure.note,
    }


def _day_json(day: DayBill) -> dict[str, object]:
    return {
        "start_s": day.start_s,
        "replica_rate_per_s": day.replica_rate_per_s,
        "fixed": {"replicas": day.fixed.most, "usd_per_day": day.fixed_usd},
        "following": {
            "most_replicas": day.following.most,
            "replica_hours": day.following.replica_hours,
            "usd_per_day": day.following_usd,
            "beyond_capacity_share": day.following.beyond_capacity_share,
        },
        "saved_share": day.saved_share,
    }
