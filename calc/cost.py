"""What serving costs: per hour, month, token, request and user; owned hardware; the traffic at which renting beats an API.

Prices are in USD. A fleet costs the same whether it is busy or idle, so every price per token holds at one traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.arrays import Numbers, not_negative, positive_finite, positive_share, share, share_below_one
from calc.units import DAY_S, HOUR_S

HOURS_PER_MONTH = 730.0
"""Hours in a month as clouds bill it: 8,760 hours a year over 12."""
HOURS_PER_YEAR = 8760.0
MILLION = 1e6
WATTS_PER_KILOWATT = 1000.0


def usd_per_hour(*, gpus: Numbers, usd_per_gpu_hour: Numbers) -> Numbers:
    """USD of a fleet for one hour.

    Source: definition. Ignores: storage, network, and the people who run it.
    """
    not_negative(gpus=gpus, usd_per_gpu_hour=usd_per_gpu_hour)
    return gpus * usd_per_gpu_hour


def usd_per_month(*, usd_per_hour: Numbers) -> Numbers:
    """USD of a fleet that runs for a whole month of 730 hours.

    Source: 8,760 hours a year over 12, as clouds bill. Ignores: fleets that follow the load.
    """
    not_negative(usd_per_hour=usd_per_hour)
    return usd_per_hour * HOURS_PER_MONTH


def usd_per_million_tokens(*, usd_per_hour: Numbers, tokens_per_s: Numbers) -> Numbers:
    """USD of a million tokens when the whole fleet is charged to them: USD per hour / (3600 · tokens/s) · 1e6.

    `tokens_per_s` is what the fleet serves, not what it could: idle capacity is paid as well.

    Source: definition. Ignores: the other kind of token (input or output), which then comes for nothing.
    """
    not_negative(usd_per_hour=usd_per_hour)
    positive_finite(tokens_per_s=tokens_per_s)
    return usd_per_hour / (HOUR_S * tokens_per_s) * MILLION


def tokens_per_usd(*, usd_per_million: Numbers) -> Numbers:
    """Output tokens that a dollar buys.

    Source: definition. Ignores: input tokens, which then come for nothing.
    """
    positive_finite(usd_per_million=usd_per_million)
    return MILLION / usd_per_million


def usd_per_request(*, usd_per_hour: Numbers, rate_per_s: Numbers) -> Numbers:
    """USD of one request: USD per hour / (3600 · requests/s).

    Source: definition. Ignores: that long requests use more than short ones.
    """
    not_negative(usd_per_hour=usd_per_hour)
    positive_finite(rate_per_s=rate_per_s)
    return usd_per_hour / (HOUR_S * rate_per_s)


def usd_per_user_month(*, usd_per_hour: Numbers, users: Numbers) -> Numbers:
    """USD of one user for a month, the fleet divided evenly.

    Source: definition. Ignores: users who come and go.
    """
    positive_finite(users=users)
    return usd_per_month(usd_per_hour=usd_per_hour) / users


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrices:
    """USD per million tokens of each kind; together they pay for the whole fleet."""

    input_usd_per_million: Numbers
    cached_usd_per_million: Numbers
    output_usd_per_million: Numbers


def token_prices(
    *,
    usd_per_hour: Numbers,
    rate_per_s: Numbers,
    input_tokens: Numbers,
    output_tokens: Numbers,
    prefill_gpus: Numbers,
    decode_gpus: Numbers,
    prefix_share: Numbers = 0.0,
    cache_read_share: Numbers = 0.0,
) -> TokenPrices:
    """The fleet's cost divided over computed input, cached input and output in the ratio of the work they cause.

    `prefill_gpus` and `decode_gpus` are GPUs' worth of work (`calc.textbook`), so idle capacity is shared in the same
    ratio. `cache_read_share`: share of decoding that reads cached tokens. Of that part the prompt, computed or cached,
    pays I/(I + O/2), its share of the context; cached tokens pay nothing else.

    Source: cost allocation by resource use. Ignores: the cache memory that cached tokens hold between requests.
    """
    positive_finite(rate_per_s=rate_per_s, input_tokens=input_tokens, output_tokens=output_tokens)
    not_negative(usd_per_hour=usd_per_hour, prefill_gpus=prefill_gpus, decode_gpus=decode_gpus)
    positive_share(computed_share=1.0 - prefix_share)
    share(cache_read_share=cache_read_share)
    work = prefill_gpus + decode_gpus
    positive_finite(work=work)
    common = {"usd_per_hour": usd_per_hour, "rate_per_s": rate_per_s, "input_tokens": input_tokens}
    decode_work, reading = decode_gpus / work, cache_read_share
    read = cached_usd_per_million(
        **common, output_tokens=output_tokens, decode_work=decode_work, cache_read_share=reading
    )
    return TokenPrices(
        input_usd_per_million=input_usd_per_million(
            **common, prefill_work=prefill_gpus / work, prefix_share=prefix_share, cached_usd_per_million=read
        ),
        cached_usd_per_million=read,
        output_usd_per_million=output_usd_per_million(
            **common, output_tokens=output_tokens, decode_work=decode_work, cache_read_share=reading
        ),
    )


def cached_usd_per_million(
    *,
    usd_per_hour: Numbers,
    decode_work: Numbers,
    cache_read_share: Numbers,
    rate_per_s: Numbers,
    input_tokens: Numbers,
    output_tokens: Numbers,
) -> Numbers:
    """USD of a million prompt tokens that are in the cache: what decoding spends on reading prompts.

    `decode_work`: decoding's share of the fleet's work, `cache_read_share`: what of it reads the cache. A prompt is
    I/(I + O/2) of the context that is read.

    Source: cost allocation by resource use. Ignores: the cache memory that cached tokens hold between requests.
    """
    spent = usd_per_hour / HOUR_S * decode_work * cache_read_share
    return spent / (rate_per_s * (input_tokens + output_tokens / 2.0)) * MILLION


def input_usd_per_million(
    *,
    usd_per_hour: Numbers,
    prefill_work: Numbers,
    rate_per_s: Numbers,
    input_tokens: Numbers,
    prefix_share: Numbers,
    cached_usd_per_million: Numbers,
) -> Numbers:
    """USD of a million prompt tokens that are computed: the fleet's work on prompts over them, and what a cached one pays.

    Source: cost allocation by resource use. Ignores: the cache memory that tokens hold between requests.
    """
    computed = rate_per_s * input_tokens * (1.0 - prefix_share)
    return cached_usd_per_million + usd_per_hour / HOUR_S * prefill_work / computed * MILLION


def output_usd_per_million(
    *,
    usd_per_hour: Numbers,
    decode_work: Numbers,
    cache_read_share: Numbers,
    rate_per_s: Numbers,
    input_tokens: Numbers,
    output_tokens: Numbers,
) -> Numbers:
    """USD of a million output tokens: the fleet's work on decoding, less what reading prompts takes of it.

    Source: cost allocation by resource use. Ignores: the cache memory that cached tokens hold between requests.
    """
    prompts = cache_read_share * input_tokens / (input_tokens + output_tokens / 2.0)
    return usd_per_hour / HOUR_S * decode_work * (1.0 - prompts) / (rate_per_s * output_tokens) * MILLION


def api_usd_per_request(
    *,
    input_tokens: Numbers,
    output_tokens: Numbers,
    input_usd_per_million: Numbers,
    output_usd_per_million: Numbers,
    prefix_share: Numbers = 0.0,
    cached_usd_per_million: Numbers = 0.0,
) -> Numbers:
    """USD that an API charges for one request at its prices per million tokens.

    Source: how APIs bill. Ignores: minimum charges, batch discounts, writes into the cache.
    """
    not_negative(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        input_usd_per_million=input_usd_per_million,
        output_usd_per_million=output_usd_per_million,
        prefix_share=prefix_share,
        cached_usd_per_million=cached_usd_per_million,
    )
    prompt = (1.0 - prefix_share) * input_usd_per_million + prefix_share * cached_usd_per_million
    return (input_tokens * prompt + output_tokens * output_usd_per_million) / MILLION


def break_even_rate_per_s(*, usd_per_hour: Numbers, api_usd_per_request: Numbers) -> Numbers:
    """Requests per second above which a fleet of this price is cheaper than an API of that price.

    USD per hour / (3600 · USD per request); the fleet must be able to serve them.

    Source: both costs set equal. Ignores: that a larger traffic may need a larger fleet.
    """
    not_negative(usd_per_hour=usd_per_hour)
    positive_finite(api_usd_per_request=api_usd_per_request)
    return usd_per_hour / (HOUR_S * api_usd_per_request)


def owned_usd_per_gpu_hour(
    *,
    purchase_usd: Numbers,
    years: Numbers,
    watts: Numbers,
    usd_per_kwh: Numbers,
    utilisation: Numbers = 1.0,
    overhead_factor: Numbers = 1.0,
) -> Numbers:
    """USD of one used hour of an owned GPU: purchase over its used hours, and electricity.

    `purchase_usd` is one GPU with its share of the server; `utilisation` the share of its life in which it serves;
    `overhead_factor` watts at the meter over watts of the GPU (host and cooling).

    Source: straight-line depreciation. Ignores: interest, space, repair, resale, power while idle.
    """
    not_negative(purchase_usd=purchase_usd, watts=watts, usd_per_kwh=usd_per_kwh)
    positive_finite(years=years, overhead_factor=overhead_factor)
    positive_share(utilisation=utilisation)
    capital = purchase_usd / (years * HOURS_PER_YEAR * utilisation)
    return capital + watts * overhead_factor / WATTS_PER_KILOWATT * usd_per_kwh


def spot_usd_per_gpu_hour(
    *, usd_per_gpu_hour: Numbers, interruptions_per_day: Numbers, lost_s: Numbers
) -> Numbers:
    """USD of one hour that serves on spot capacity: each interruption loses `lost_s`, which is paid or made up for.

    Source: definition; what is lost is the start of a replacement and the work thrown away.
    Ignores: that many are interrupted at once, and days on which none can be had.
    """
    not_negative(
        usd_per_gpu_hour=usd_per_gpu_hour, interruptions_per_day=interruptions_per_day, lost_s=lost_s
    )
    lost = interruptions_per_day * lost_s / DAY_S
    share_below_one(lost_share=lost)
    return usd_per_gpu_hour / (1.0 - lost)


def joules_per_token(*, gpus: Numbers, power_w: Numbers, tokens_per_s: Numbers) -> Numbers:
    """Joules of one output token when every GPU draws `power_w`.

    Source: definition. Ignores: that a GPU that waits for memory draws less than its limit; take a range of powers.
    """
    not_negative(gpus=gpus, power_w=power_w)
    positive_finite(tokens_per_s=tokens_per_s)
    return gpus * power_w / tokens_per_s


def planned_rate_per_s(*, rate_per_s: Numbers, busy_gpus: Numbers, headroom: Numbers) -> Numbers:
    """Requests per second that one replica is planned to take: its capacity less the headroom.

    Source: definition. Ignores: that whole replicas are bought, which leaves each of them less.
    """
    positive_finite(busy_gpus=busy_gpus)
    return rate_per_s / (busy_gpus * (1.0 + headroom))


def usd_of_replica_hours(*, replica_hours: Numbers, gpus: Numbers, usd_per_gpu_hour: Numbers) -> Numbers:
    """USD of replica hours of `gpus` GPUs each.

    Source: definition. Ignores: what is billed by the started hour.
    """
    return usd_per_hour(gpus=replica_hours * gpus, usd_per_gpu_hour=usd_per_gpu_hour)
