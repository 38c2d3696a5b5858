"""Formulas of a bill: what an hour costs by tenure, prices of tokens by the work they cause, an API, energy, a day."""

from __future__ import annotations

from calc import autoscaling, cost, energy
from calc.formulas.record import Example, Formula, Symbol, in_seconds
from calc.formulas.symbols import named

TOPIC = "Cost"
POWER = "joule/second"


def _usd(name: str, latex: str, meaning: str) -> Symbol:
    return Symbol(name=name, latex=latex, meaning=meaning, unit="USD")


TENURE_FORMULAS = (
    Formula(
        id="spot_usd_per_gpu_hour",
        title="An hour that serves on spot capacity",
        topic=TOPIC,
        result=_usd("spot_usd_per_gpu_hour", "c_{spot}", "price of one GPU for an hour that serves"),
        template=r"\frac{${usd_per_gpu_hour}}{1 - ${interruptions_per_day} \cdot ${lost_s} / 86400}",
        parameters=named("usd_per_gpu_hour", "interruptions_per_day", "lost_s"),
        function=cost.spot_usd_per_gpu_hour,
        example=Example(
            inputs={"usd_per_gpu_hour": 1.0, "interruptions_per_day": 4, "lost_s": 2160},
            value=1 / 0.9,
            rel=1e-9,
            source="by hand: four times 36 minutes are a tenth of a day",
        ),
    ),
    Formula(
        id="owned_usd_per_gpu_hour",
        title="An hour of an owned GPU",
        topic=TOPIC,
        result=_usd("owned_usd_per_gpu_hour", "c_{own}", "price of one GPU for one hour"),
        template=r"\frac{${purchase_usd}}{${years} \cdot 8760} + \frac{${watts} \cdot ${overhead_factor}}{1000} \cdot "
        r"${usd_per_kwh}",
        parameters=named("purchase_usd", "years", "watts", "overhead_factor", "usd_per_kwh"),
        function=cost.owned_usd_per_gpu_hour,
        example=Example(
            inputs={
                "purchase_usd": 35_040,
                "years": 4,
                "watts": 500,
                "overhead_factor": 1.2,
                "usd_per_kwh": 0.1,
            },
            value=1.06,
            rel=1e-9,
            source="by hand: a dollar an hour over four years, and 0.6 kW at 10 cents",
        ),
    ),
    Formula(
        id="usd_per_month",
        title="A month of 730 hours",
        topic=TOPIC,
        result=_usd("usd_per_month", "c_m", "price of the fleet for a month"),
        template=r"${usd_per_hour} \cdot 730",
        parameters=named("usd_per_hour"),
        function=cost.usd_per_month,
        example=Example(
            inputs={"usd_per_hour": 2.0}, value=1460.0, rel=1e-9, source="8,760 hours a year over 12"
        ),
    ),
)

PRICE_FORMULAS = (
    Formula(
        id="cached_usd_per_million",
        title="A million cached prompt tokens",
        topic=TOPIC,
        result=_usd("cached_usd_per_million", "c_{hit}", "price of a million cached prompt tokens"),
        template=r"\frac{${usd_per_hour}}{3600} \cdot ${decode_work} \cdot \frac{${cache_read_share}}{${rate_per_s} \cdot "
        r"(${input_tokens} + ${output_tokens} / 2)} \cdot 10^6",
        parameters=named(
            "usd_per_hour", "decode_work", "cache_read_share", "rate_per_s", "input_tokens", "output_tokens"
        ),
        function=cost.cached_usd_per_million,
        example=Example(
            inputs={
                "usd_per_hour": 3600.0,
                "decode_work": 0.5,
                "cache_read_share": 0.4,
                "rate_per_s": 1.0,
                "input_tokens": 150,
                "output_tokens": 100,
            },
            value=1000.0,
            rel=1e-9,
            source="by hand: 0.2 USD a second read 200 tokens of context",
        ),
    ),
    Formula(
        id="input_usd_per_million",
        title="A million computed prompt tokens",
        topic=TOPIC,
        result=_usd("input_usd_per_million", "c_{in}", "price of a million computed prompt tokens"),
        template=r"${cached_usd_per_million} + \frac{${usd_per_hour}}{3600} \cdot \frac{${prefill_work}}{${rate_per_s} \cdot "
        r"${input_tokens} \cdot (1 - ${prefix_share})} \cdot 10^6",
        parameters=named(
            "cached_usd_per_million",
            "usd_per_hour",
            "prefill_work",
            "rate_per_s",
            "input_tokens",
            "prefix_share",
        ),
        function=cost.input_usd_per_million,
        example=Example(
            inputs={
                "cached_usd_per_million": 1000.0,
                "usd_per_hour": 3600.0,
                "prefill_work": 0.5,
                "rate_per_s": 1.0,
                "input_tokens": 250,
                "prefix_share": 0.2,
            },
            value=3500.0,
            rel=1e-9,
            source="by hand: half a dollar computes 200 tokens, and each is read as a cached one is",
        ),
    ),
    Formula(
        id="output_usd_per_million",
        title="A million output tokens beside their prompts",
        topic=TOPIC,
        result=_usd("output_usd_per_million", "c_{out}", "price of a million output tokens"),
        template=r"\frac{${usd_per_hour}}{3600} \cdot ${decode_work} \cdot \frac{1 - ${cache_read_share} \cdot "
        r"\frac{${input_tokens}}{${input_tokens} + ${output_tokens} / 2}}{${rate_per_s} \cdot ${output_tokens}} \cdot 10^6",
        parameters=named(
            "usd_per_hour", "decode_work", "cache_read_share", "rate_per_s", "input_tokens", "output_tokens"
        ),
        function=cost.output_usd_per_million,
        example=Example(
            inputs={
                "usd_per_hour": 3600.0,
                "decode_work": 0.5,
                "cache_read_share": 0.4,
                "rate_per_s": 1.0,
                "input_tokens": 150,
                "output_tokens": 100,
            },
            value=3500.0,
            rel=1e-9,
            source="by hand: of half a dollar 0.15 read the prompts, the rest makes 100 tokens",
        ),
    ),
    Formula(
        id="api_usd_per_request",
        title="One request at an API",
        topic=TOPIC,
        result=_usd("api_usd_per_request", "c_{API}", "what an API charges for one request"),
        template=r"\frac{${input_tokens} \cdot ((1 - ${prefix_share}) \cdot ${input_usd_per_million} + ${prefix_share} \cdot "
        r"${cached_usd_per_million}) + ${output_tokens} \cdot ${output_usd_per_million}}{10^6}",
        parameters=named(
            "input_tokens",
            "prefix_share",
            "input_usd_per_million",
            "cached_usd_per_million",
            "output_tokens",
            "output_usd_per_million",
        ),
        function=cost.api_usd_per_request,
        example=Example(
            inputs={
                "input_tokens": 1000,
                "prefix_share": 0.5,
                "input_usd_per_million": 3.0,
                "cached_usd_per_million": 0.3,
                "output_tokens": 200,
                "output_usd_per_million": 15.0,
            },
            value=0.00465,
            rel=1e-9,
            source="by hand: 500 tokens at 3, 500 at 0.3 and 200 at 15 USD a million",
        ),
    ),
)

ENERGY_FORMULAS = (
    Formula(
        id="mean_watts",
        title="Mean power of a GPU that serves",
        topic=TOPIC,
        result=Symbol(name="mean_watts", latex="P", meaning="mean power of one GPU", unit=POWER),
        template=r"${power_limit_w} \cdot (${prefill_share} \cdot ${prefill_draw} + ${decode_share} \cdot ${decode_draw} + "
        r"(1 - ${prefill_share} - ${decode_share}) \cdot ${idle_draw})",
        parameters=named(
            "power_limit_w", "prefill_share", "prefill_draw", "decode_share", "decode_draw", "idle_draw"
        ),
        function=energy.mean_watts,
        example=Example(
            inputs={
                "power_limit_w": 700,
                "prefill_share": 0.2,
                "prefill_draw": 0.9,
                "decode_share": 0.5,
                "decode_draw": 0.4,
                "idle_draw": 0.1,
            },
            value=287.0,
            rel=1e-9,
            source="by hand: 126 W of prompts, 140 W of decoding, 21 W of waiting",
        ),
    ),
    Formula(
        id="watts_per_user",
        title="Power for one user",
        topic=TOPIC,
        result=Symbol(
            name="watts_per_user", latex="P_{user}", meaning="power of the GPUs for one user", unit=POWER
        ),
        template=r"\frac{${gpus} \cdot ${power_w}}{${users}}",
        parameters=named("gpus", "power_w", "users"),
        function=energy.watts_per_user,
        example=Example(
            inputs={"gpus": 2, "power_w": 300, "users": 60},
            value=10.0,
            rel=1e-9,
            source="by hand: 600 W for sixty users",
        ),
    ),
    Formula(
        id="joules_per_token",
        title="Energy of one output token",
        topic=TOPIC,
        result=Symbol(name="joules_per_token", latex="E", meaning="energy of one token", unit="joule"),
        template=r"\frac{${gpus} \cdot ${power_w}}{${tokens_per_s}}",
        parameters=named("gpus", "power_w", "tokens_per_s"),
        function=cost.joules_per_token,
        example=Example(
            inputs={"gpus": 8, "power_w": 500, "tokens_per_s": 2000},
            value=2.0,
            rel=1e-9,
            source="by hand: 4 kW for 2,000 tokens a second",
        ),
    ),
)

DAY_FORMULAS = (
    Formula(
        id="planned_rate_per_s",
        title="Requests that one replica is planned for",
        topic=TOPIC,
        result=Symbol(
            name="planned_rate_per_s", latex=r"\lambda_1", meaning="requests per second", unit="1/second"
        ),
        template=r"\frac{${rate_per_s}}{${busy_gpus} \cdot (1 + ${headroom})}",
        parameters=named("rate_per_s", "busy_gpus", "headroom"),
        function=cost.planned_rate_per_s,
        example=Example(
            inputs={"rate_per_s": 13, "busy_gpus": 2, "headroom": 0.3},
            value=5.0,
            rel=1e-9,
            source="by hand: 13 a second on 2.6 replicas",
        ),
    ),
    Formula(
        id="replica_start_s",
        title="Until a new replica serves",
        topic=TOPIC,
        result=in_seconds("replica_start_s", "t_{start}", "from the decision to a replica that serves"),
        template=r"${provision_s} + \frac{${weight_bytes_per_gpu}}{${read_bytes_per_s}} + ${warm_up_s}",
        parameters=named("provision_s", "weight_bytes_per_gpu", "read_bytes_per_s", "warm_up_s"),
        function=autoscaling.replica_start_s,
        example=Example(
            inputs={
                "provision_s": 120,
                "weight_bytes_per_gpu": 26e9,
                "read_bytes_per_s": 2e9,
                "warm_up_s": 60,
            },
            value=193.0,
            rel=1e-9,
            source="by hand: 26 GB at 2 GB/s between two and one minutes",
        ),
    ),
    Formula(
        id="usd_of_replica_hours",
        title="Replica hours of a day",
        topic=TOPIC,
        result=_usd("usd_of_replica_hours", "c_d", "price of a day"),
        template=r"${replica_hours} \cdot ${gpus} \cdot ${usd_per_gpu_hour}",
        parameters=named("replica_hours", "gpus", "usd_per_gpu_hour"),
        function=cost.usd_of_replica_hours,
        example=Example(
            inputs={"replica_hours": 24, "gpus": 2, "usd_per_gpu_hour": 2.0},
            value=96.0,
            rel=1e-9,
            source="by hand: one replica of two GPUs all day",
        ),
    ),
)

BILL_FORMULAS = (*TENURE_FORMULAS, *PRICE_FORMULAS, *ENERGY_FORMULAS, *DAY_FORMULAS)
