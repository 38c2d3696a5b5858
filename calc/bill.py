"""The bill of an answer: what it costs by tenure, against an API, over a day that rises and falls, and in energy.

Everything a person types stands in `Market`; nothing is guessed that has a price. An answer without a known price has a
bill for the tenures that the person priced, and none otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calc import cost
from calc.arrays import not_negative, positive_finite
from calc.autoscaling import FleetDay, fixed_fleet, following_fleet, replica_start_s
from calc.energy import token_joules, watts_per_gpu
from calc.errors import InputError
from calc.provenance import Estimate
from calc.result import Answer
from calc.simulation.workload import diurnal_concentration
from calc.units import DAY_S, HOUR_S

INTERVALS_PER_DAY = 288
"""Five minutes each: what autoscalers average over, and short against a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """GPUs that are bought.

    `purchase_usd`: one GPU with its share of server and network; `overhead_factor`: watts at the meter over watts of
    the GPU (host, cooling).
    """

    purchase_usd: float
    years: float = 4.0
    usd_per_kwh: float = 0.12
    overhead_factor: float = 1.5

    def __post_init__(self) -> None:
        not_negative(purchase_usd=self.purchase_usd, usd_per_kwh=self.usd_per_kwh)
        positive_finite(years=self.years, overhead_factor=self.overhead_factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPrices:
    """What an API asks, USD per million tokens; `cached` None: as for other input."""

    input_usd_per_million: float
    output_usd_per_million: float
    cached_usd_per_million: float | None = None

    def __post_init__(self) -> None:
        not_negative(
            input_usd_per_million=self.input_usd_per_million,
            output_usd_per_million=self.output_usd_per_million,
            cached_usd_per_million=self.cached_usd_per_million or 0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A day's course and how replicas start. The scenario's rate is the peak; `peak_factor` its multiple of the mean.

    `read_bytes_per_s`: disk or network of one GPU; `provision_s`: until there is a machine; `warm_up_s`: compilation and
    graph capture; `hold_s`: how long an autoscaler waits before it gives a replica up (Kubernetes: 300 s).
    """

    peak_factor: float = 2.0
    read_bytes_per_s: float = 2e9
    provision_s: float = 120.0
    warm_up_s: float = 60.0
    hold_s: float = 300.0
    spare: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """What a person knows of prices and use; None: not on offer. USD per GPU hour, `requests_per_user_day` per person."""

    on_demand_usd: float | None = None
    reserved_usd: float | None = None
    spot_usd: float | None = None
    spot_interruptions_per_day: float = 1.0
    owned: Owned | None = None
    api: ApiPrices | None = None
    requests_per_user_day: float | None = None
    day: Day = Day()

    def __post_init__(self) -> None:
        for name in ("on_demand_usd", "reserved_usd", "spot_usd"):
            value = getattr(self, name)
            if value is not None:
                positive_finite(**{name: value})
        if self.requests_per_user_day is not None:
            positive_finite(requests_per_user_day=self.requests_per_user_day)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """One way to have the GPUs, and what everything then costs. `users`: see `Bill.users`."""

    name: str
    usd_per_gpu_hour: float
    usd_per_hour: float
    usd_per_month: float
    usd_per_million_output: float
    prices: cost.TokenPrices
    usd_per_request: float
    usd_per_user_month: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstApi:
    """The cheapest tenure beside an API. `break_even_per_s` None: a full replica is dearer per request, at any traffic."""

    usd_per_request: float
    usd_per_month: float
    break_even_per_s: float | None
    full_replica_usd_per_request: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBill:
    """A fixed fleet and one that follows the day, at the first tenure's price."""

    start_s: float
    replica_rate_per_s: float
    rates_per_s: np.ndarray
    fixed: FleetDay
    following: FleetDay
    fixed_usd: float
    following_usd: float

    def capacity_per_s(self, replicas: np.ndarray) -> np.ndarray:
        """Requests per second that so many replicas are planned to take."""
        return replicas * self.replica_rate_per_s

    @property
    def saved_share(self) -> float:
        return 1.0 - self.following_usd / self.fixed_usd if self.fixed_usd else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """All of it. `users`: people whose requests are the traffic, where the market says how many each makes.

    `start_s`: seconds until a new replica serves, where spot capacity is lost for so long.
    """

    tenures: tuple[Tenure, ...]
    api: AgainstApi | None
    day: DayBill | None
    watts_per_gpu: Estimate | None
    joules_per_token: Estimate | None
    kilowatts: Estimate | None
    users: float | None
    start_s: float | None = None


def bill_of(result: Answer, market: Market) -> Bill:
    """The bill of an answer that works; raises `InputError` for one that does not, or without traffic."""
    fleet = result.fleet
    if fleet is None or not result.verdict.fits:
        raise InputError("plan", result.verdict.reason, "only a plan that works has a bill")
    if fleet.rate_per_s <= 0:
        raise InputError("rate", fleet.rate_per_s, "a bill per token needs traffic")
    watts = _watts(result)
    users = _users(result, market)
    tenures = _tenures(result, market, watts, users)
    tokens_per_s = fleet.rate_per_s * result.inputs.scenario.output_tokens
    return Bill(
        tenures=tenures,
        api=_against_api(result, market, tenures),
        day=_day(result, market, tenures),
        watts_per_gpu=watts,
        joules_per_token=None
        if watts is None
        else token_joules(watts, gpus=result.gpus, tokens_per_s=tokens_per_s),
        kilowatts=None if watts is None else watts.scaled(result.gpus / cost.WATTS_PER_KILOWATT),
        users=users,
        start_s=start_of(result, market.day),
    )


def replica_rate_per_s(result: Answer) -> float:
    """Requests per second that one replica is planned to take: its capacity less the headroom."""
    fleet = result.fleet
    if fleet is None or fleet.busy <= 0:
        return 0.0
    headroom = result.inputs.scenario.headroom
    return float(
        cost.planned_rate_per_s(rate_per_s=fleet.rate_per_s, busy_gpus=fleet.busy, headroom=headroom)
    )


def day_rates(*, peak_per_s: float, peak_factor: float) -> np.ndarray:
    """Requests per second of each five minutes of a von Mises day whose highest rate is `peak_per_s`."""
    positive_finite(peak_per_s=peak_per_s)
    k = diurnal_concentration(peak_factor)
    phase = np.arange(INTERVALS_PER_DAY) / INTERVALS_PER_DAY
    return peak_per_s * np.exp(k * (-np.cos(2.0 * np.pi * phase) - 1.0))


def _watts(result: Answer) -> Estimate | None:
    limit, fleet = result.inputs.offer.accelerator.power_w, result.fleet
    if limit is None or fleet is None:
        return None
    prefill, decode = time_shares(result)
    return watts_per_gpu(power_limit_w=limit, prefill_share=prefill, decode_share=decode)


def time_shares(result: Answer) -> tuple[float, float]:
    """Shares of its time that a GPU of the plan spends on prompts and on decoding."""
    if result.fleet is None:
        return 0.0, 0.0
    prefill = min(1.0, result.fleet.prefill_busy / result.fleet.replicas)
    return prefill, min(1.0 - prefill, result.fleet.decode_busy / result.fleet.replicas)


def _users(result: Answer, market: Market) -> float | None:
    concurrency = result.inputs.scenario.workload.concurrency
    if concurrency is not None:
        return float(concurrency)
    if market.requests_per_user_day is None or result.fleet is None:
        return None
    mean_rate = result.fleet.rate_per_s / market.day.peak_factor
    return mean_rate * DAY_S / market.requests_per_user_day


def _tenures(
    result: Answer, market: Market, watts: Estimate | None, users: float | None
) -> tuple[Tenure, ...]:
    offer = result.inputs.offer
    listed = market.on_demand_usd if market.on_demand_usd is not None else offer.usd_per_gpu_hour
    ways: list[tuple[str, float, str]] = []
    if listed is not None:
        ways.append(("on demand", listed, offer.price_note if market.on_demand_usd is None else "typed"))
    if market.reserved_usd is not None:
        ways.append(("reserved", market.reserved_usd, "paid every hour, used or not"))
    if market.spot_usd is not None:
        lost = start_of(result, market.day)
        effective = cost.spot_usd_per_gpu_hour(
            usd_per_gpu_hour=market.spot_usd,
            interruptions_per_day=market.spot_interruptions_per_day,
            lost_s=lost,
        )
        note = f"{market.spot_interruptions_per_day:g} interruptions a day of {lost:.0f} s each"
        ways.append(("spot", float(effective), note))
    if market.owned is not None:
        if watts is None:
            raise InputError("power", None, "an owned GPU needs a known power limit")
        owned = cost.owned_usd_per_gpu_hour(
            purchase_usd=market.owned.purchase_usd,
            years=market.owned.years,
            watts=watts.best,
            usd_per_kwh=market.owned.usd_per_kwh,
            overhead_factor=market.owned.overhead_factor,
        )
        ways.append(
            ("owned", float(owned), f"over {market.owned.years:g} years, {watts.best:.0f} W on average")
        )
    return tuple(_tenure(result, *way, users=users) for way in ways)


def _tenure(result: Answer, name: str, usd_per_gpu_hour: float, note: str, *, users: float | None) -> Tenure:
    scenario, fleet = result.inputs.scenario, result.fleet
    if fleet is None:
        raise InputError("plan", result.verdict.reason, "only a plan that works has a bill")
    hour = float(cost.usd_per_hour(gpus=result.gpus, usd_per_gpu_hour=usd_per_gpu_hour))
    return Tenure(
        name=name,
        usd_per_gpu_hour=usd_per_gpu_hour,
        usd_per_hour=hour,
        usd_per_month=float(cost.usd_per_month(usd_per_hour=hour)),
        usd_per_million_output=float(
            cost.usd_per_million_tokens(
                usd_per_hour=hour, tokens_per_s=fleet.rate_per_s * scenario.output_tokens
            )
        ),
        prices=cost.token_prices(
            usd_per_hour=hour,
            rate_per_s=fleet.rate_per_s,
            input_tokens=scenario.input_tokens,
            output_tokens=scenario.output_tokens,
            prefill_gpus=fleet.prefill_busy,
            decode_gpus=fleet.decode_busy,
            prefix_share=cached_share(result),
            cache_read_share=cache_read_share(result),
        ),
        usd_per_request=float(cost.usd_per_request(usd_per_hour=hour, rate_per_s=fleet.rate_per_s)),
        usd_per_user_month=None
        if not users
        else float(cost.usd_per_user_month(usd_per_hour=hour, users=users)),
        note=note,
    )


def cached_share(result: Answer) -> float:
    """Share of prompt tokens that the deployment's own caches hold: what survives of text that comes back, none without a cache."""
    if result.prefill is None:
        return result.inputs.scenario.workload.prefix_share
    return result.prefill.cached_share


def cache_read_share(result: Answer) -> float:
    """Share of a decode step that reads the cache: its term over all terms."""
    if result.decode is None:
        return 0.0
    terms = result.decode.time.terms_s
    whole = sum(value for value in terms.values() if np.isfinite(value))
    return min(1.0, max(0.0, terms.get("kv", 0.0) / whole)) if whole > 0 else 0.0


def _against_api(result: Answer, market: Market, tenures: tuple[Tenure, ...]) -> AgainstApi | None:
    if market.api is None or not tenures or result.fleet is None:
        return None
    scenario, api = result.inputs.scenario, market.api
    cached = api.input_usd_per_million if api.cached_usd_per_million is None else api.cached_usd_per_million
    each = float(
        cost.api_usd_per_request(
            input_tokens=scenario.input_tokens,
            output_tokens=scenario.output_tokens,
            input_usd_per_million=api.input_usd_per_million,
            output_usd_per_million=api.output_usd_per_million,
            prefix_share=scenario.prefix_share,
            cached_usd_per_million=cached,
        )
    )
    cheapest = min(tenures, key=lambda t: t.usd_per_gpu_hour)
    replica_hour = cheapest.usd_per_gpu_hour * result.layout.gpus_per_replica
    full = replica_hour / (HOUR_S * replica_rate_per_s(result))
    rate = None
    if 0 < full <= each:
        rate = float(cost.break_even_rate_per_s(usd_per_hour=replica_hour, api_usd_per_request=each))
    return AgainstApi(
        usd_per_request=each,
        usd_per_month=each * result.fleet.rate_per_s * HOUR_S * cost.HOURS_PER_MONTH,
        break_even_per_s=rate,
        full_replica_usd_per_request=full,
    )


def start_of(result: Answer, day: Day) -> float:
    """Seconds until a new replica serves."""
    return replica_start_s(
        weight_bytes_per_gpu=result.memory.weight_bytes_per_gpu,
        read_bytes_per_s=day.read_bytes_per_s,
        provision_s=day.provision_s,
        warm_up_s=day.warm_up_s,
    )


def _day(result: Answer, market: Market, tenures: tuple[Tenure, ...]) -> DayBill | None:
    """Open traffic only; users who wait for their answer have no day of their own here."""
    if not tenures or result.fleet is None or result.inputs.scenario.workload.rate_per_s is None:
        return None
    each = replica_rate_per_s(result)
    rates = day_rates(peak_per_s=result.fleet.rate_per_s, peak_factor=market.day.peak_factor)
    start_s = start_of(result, market.day)
    fixed = fixed_fleet(rates_per_s=rates, replica_rate_per_s=each)
    following = following_fleet(
        rates_per_s=rates,
        replica_rate_per_s=each,
        start_s=start_s,
        hold_s=market.day.hold_s,
        spare=market.day.spare,
    )
    gpus, price = result.layout.gpus_per_replica, tenures[0].usd_per_gpu_hour
    return DayBill(
        start_s=start_s,
        replica_rate_per_s=each,
        rates_per_s=rates,
        fixed=fixed,
        following=following,
        fixed_usd=fixed.usd_per_day(gpus_per_replica=gpus, usd_per_gpu_hour=price),
        following_usd=following.usd_per_day(gpus_per_replica=gpus, usd_per_gpu_hour=price),
    )
