"""A bill as worked formulas: each tenure's row, the API beside it, the day, the energy."""

from __future__ import annotations

from collections.abc import Iterator

from calc import cost
from calc.autoscaling import FleetDay
from calc.bill import Bill, Market, Tenure, cache_read_share, cached_share, replica_rate_per_s, time_shares
from calc.energy import DECODE_SHARE, IDLE_SHARE, PREFILL_SHARE
from calc.result import Answer
from calc.worked.formula import Worked

BEST = 1  # of the three ends of a range


def worked_tenure(result: Answer, market: Market, bill: Bill, tenure: Tenure) -> tuple[Worked, ...]:
    """One row of the tenures' table, in the order of its columns."""
    if result.fleet is None:
        return ()
    hour, rate = tenure.usd_per_hour, result.fleet.rate_per_s
    return (
        *_gpu_hour(result, market, bill, tenure),
        Worked(
            formula="usd_per_hour",
            inputs={"gpus": result.gpus, "usd_per_gpu_hour": tenure.usd_per_gpu_hour},
            result=hour,
        ),
        Worked(formula="usd_per_month", inputs={"usd_per_hour": hour}, result=tenure.usd_per_month),
        Worked(
            formula="usd_per_request",
            inputs={"usd_per_hour": hour, "rate_per_s": rate},
            result=tenure.usd_per_request,
        ),
        *_prices(result, tenure),
    )


def worked_beside_the_tenures(result: Answer, market: Market, bill: Bill) -> tuple[Worked, ...]:
    """What a bill says beside its tenures: the API and where it is beaten, a day, the energy of a token."""
    return (*_api(result, market, bill), *_day(result, market, bill), *_energy(result, bill))


def _gpu_hour(result: Answer, market: Market, bill: Bill, tenure: Tenure) -> Iterator[Worked]:
    """What an hour of a GPU costs, where it is not a price that somebody asks."""
    if tenure.name == "spot" and market.spot_usd is not None and bill.start_s is not None:
        yield Worked(
            formula="spot_usd_per_gpu_hour",
            inputs={
                "usd_per_gpu_hour": market.spot_usd,
                "interruptions_per_day": market.spot_interruptions_per_day,
                "lost_s": bill.start_s,
            },
            result=tenure.usd_per_gpu_hour,
        )
    if tenure.name == "owned" and market.owned is not None and bill.watts_per_gpu is not None:
        yield from _watts(result, bill)
        yield Worked(
            formula="owned_usd_per_gpu_hour",
            inputs={
                "purchase_usd": market.owned.purchase_usd,
                "years": market.owned.years,
                "watts": bill.watts_per_gpu.best,
                "overhead_factor": market.owned.overhead_factor,
                "usd_per_kwh": market.owned.usd_per_kwh,
            },
            result=tenure.usd_per_gpu_hour,
        )


def _prices(result: Answer, tenure: Tenure) -> Iterator[Worked]:
    """Prices of the three kinds of token, which together pay for the fleet."""
    fleet, scenario = result.fleet, result.inputs.scenario
    if fleet is None:
        return
    common = {
        "usd_per_hour": tenure.usd_per_hour,
        "rate_per_s": fleet.rate_per_s,
        "input_tokens": scenario.input_tokens,
        "output_tokens": scenario.output_tokens,
        "decode_work": fleet.decode_busy / fleet.busy,
        "prefill_work": fleet.prefill_busy / fleet.busy,
        "cache_read_share": cache_read_share(result),
        "prefix_share": cached_share(result),
    }
    cached = float(tenure.prices.cached_usd_per_million)
    yield Worked(formula="cached_usd_per_million", inputs=common, result=cached)
    yield Worked(
        formula="input_usd_per_million",
        inputs=common | {"cached_usd_per_million": cached},
        result=float(tenure.prices.input_usd_per_million),
    )
    yield Worked(
        formula="output_usd_per_million",
        inputs=common,
        result=float(tenure.prices.output_usd_per_million),
    )


def _api(result: Answer, market: Market, bill: Bill) -> Iterator[Worked]:
    if bill.api is None or market.api is None or result.fleet is None:
        return
    scenario, api = result.inputs.scenario, market.api
    cached = api.cached_usd_per_million
    yield Worked(
        formula="api_usd_per_request",
        inputs={
            "input_tokens": scenario.input_tokens,
            "prefix_share": scenario.prefix_share,
            "input_usd_per_million": api.input_usd_per_million,
            "cached_usd_per_million": api.input_usd_per_million if cached is None else cached,
            "output_tokens": scenario.output_tokens,
            "output_usd_per_million": api.output_usd_per_million,
        },
        result=bill.api.usd_per_request,
        about="the API",
    )
    yield _planned(result, about="one full replica of the cheapest tenure")
    cheapest = min(bill.tenures, key=lambda tenure: tenure.usd_per_gpu_hour)
    gpus = result.layout.gpus_per_replica
    hour = float(cost.usd_per_hour(gpus=gpus, usd_per_gpu_hour=cheapest.usd_per_gpu_hour))
    yield Worked(
        formula="usd_per_hour",
        inputs={"gpus": gpus, "usd_per_gpu_hour": cheapest.usd_per_gpu_hour},
        result=hour,
        about="one full replica of the cheapest tenure",
    )
    yield Worked(
        formula="usd_per_request",
        inputs={"usd_per_hour": hour, "rate_per_s": replica_rate_per_s(result)},
        result=bill.api.full_replica_usd_per_request,
        about="one full replica of the cheapest tenure",
    )
    if bill.api.break_even_per_s is not None:
        yield Worked(
            formula="break_even_rate_per_s",
            inputs={"usd_per_hour": hour, "api_usd_per_request": bill.api.usd_per_request},
            result=bill.api.break_even_per_s,
            about="the traffic from which on a replica is cheaper",
        )


def _planned(result: Answer, *, about: str) -> Worked:
    fleet, headroom = result.fleet, result.inputs.scenario.headroom
    busy = fleet.busy if fleet is not None else 0.0
    rate = fleet.rate_per_s if fleet is not None else 0.0
    return Worked(
        formula="planned_rate_per_s",
        inputs={"rate_per_s": rate, "busy_gpus": busy, "headroom": headroom},
        result=replica_rate_per_s(result),
        about=about,
    )


def _day(result: Answer, market: Market, bill: Bill) -> Iterator[Worked]:
    if bill.day is None:
        return
    day, course = bill.day, market.day
    about = "a day"
    yield Worked(
        formula="replica_start_s",
        inputs={
            "provision_s": course.provision_s,
            "weight_bytes_per_gpu": result.memory.weight_bytes_per_gpu,
            "read_bytes_per_s": course.read_bytes_per_s,
            "warm_up_s": course.warm_up_s,
        },
        result=day.start_s,
        about=about,
    )
    yield _planned(result, about=about)
    price = bill.tenures[0].usd_per_gpu_hour
    for name, fleet, usd in (
        ("the fixed fleet's day", day.fixed, day.fixed_usd),
        ("the following fleet's day", day.following, day.following_usd),
    ):
        yield _hours(result, fleet, price, usd, about=name)


def _hours(result: Answer, fleet: FleetDay, price: float, usd: float, *, about: str) -> Worked:
    return Worked(
        formula="usd_of_replica_hours",
        inputs={
            "replica_hours": fleet.replica_hours,
            "gpus": result.layout.gpus_per_replica,
            "usd_per_gpu_hour": price,
        },
        result=usd,
        about=about,
    )


def _watts(result: Answer, bill: Bill, about: str = "") -> Iterator[Worked]:
    limit = result.inputs.offer.accelerator.power_w
    if limit is None or bill.watts_per_gpu is None:
        return
    prefill, decode = time_shares(result)
    yield Worked(
        formula="mean_watts",
        inputs={
            "power_limit_w": limit,
            "prefill_share": prefill,
            "prefill_draw": PREFILL_SHARE[BEST],
            "decode_share": decode,
            "decode_draw": DECODE_SHARE[BEST],
            "idle_draw": IDLE_SHARE[BEST],
        },
        result=bill.watts_per_gpu.best,
        about=about,
    )


def _energy(result: Answer, bill: Bill) -> Iterator[Worked]:
    if bill.joules_per_token is None or bill.watts_per_gpu is None or result.output_tokens_per_s is None:
        return
    yield from _watts(result, bill, about="energy")
    yield Worked(
        formula="joules_per_token",
        inputs={
            "gpus": result.gpus,
            "power_w": bill.watts_per_gpu.best,
            "tokens_per_s": result.output_tokens_per_s,
        },
        result=bill.joules_per_token.best,
        about="energy",
    )
