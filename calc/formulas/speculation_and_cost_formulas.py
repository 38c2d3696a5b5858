"""Formulas of speculative decoding and of cost."""

from __future__ import annotations

from calc import cost, speculative
from calc.formulas.record import Example, Formula, Symbol
from calc.formulas.symbols import named

SPECULATION = "Speculative decoding"
COST = "Cost"


SPECULATION_FORMULAS = (
    Formula(
        id="tokens_per_pass",
        title="Tokens per target pass",
        topic=SPECULATION,
        result=Symbol(name="tokens_per_pass", latex="E", meaning="expected tokens of one target pass"),
        template=r"\frac{1 - ${acceptance}^{${drafts} + 1}}{1 - ${acceptance}}",
        parameters=named("acceptance", "drafts"),
        function=speculative.tokens_per_pass,
        example=Example(
            inputs={"acceptance": 0.9, "drafts": 10},
            value=6.86,
            rel=1e-3,
            source="Leviathan et al. 2023 (arXiv 2211.17192), table 1: 6.86 times with costless drafts",
        ),
    ),
    Formula(
        id="tokens_per_pass_limit",
        title="Tokens per pass, drafts without bound",
        topic=SPECULATION,
        result=Symbol(name="tokens_per_pass_limit", latex=r"E_\infty", meaning="tokens of one target pass"),
        template=r"\frac{1}{1 - ${acceptance}}",
        parameters=named("acceptance"),
        function=speculative.tokens_per_pass_limit,
        example=Example(
            inputs={"acceptance": 0.8}, value=5.0, rel=1e-9, source="worked case spec-tokens-limit"
        ),
    ),
    Formula(
        id="speedup",
        title="Speed-up when checking is free",
        topic=SPECULATION,
        result=Symbol(name="speedup", latex="s", meaning="times faster than plain decoding"),
        template=r"\frac{1 - ${acceptance}^{${drafts} + 1}}{(1 - ${acceptance})(${drafts} \cdot ${draft_cost} + 1)}",
        parameters=named("acceptance", "drafts", "draft_cost"),
        function=speculative.speedup,
        example=Example(
            inputs={"acceptance": 0.8, "drafts": 4, "draft_cost": 0.05},
            value=2.801,
            rel=1e-3,
            source="worked case spec-speedup",
        ),
    ),
    Formula(
        id="speedup_at_batch",
        title="Speed-up with real step times",
        topic=SPECULATION,
        result=Symbol(name="speedup_at_batch", latex="s_B", meaning="times faster than plain decoding"),
        template=r"\frac{1 - ${acceptance}^{${drafts} + 1}}{1 - ${acceptance}} \cdot \frac{${step_s}}{${verify_s} + "
        r"${drafts} \cdot ${draft_step_s}}",
        parameters=named("acceptance", "drafts", "step_s", "verify_s", "draft_step_s"),
        function=speculative.speedup_at_batch,
        example=Example(
            inputs={"acceptance": 0.8, "drafts": 4, "step_s": 0.02, "verify_s": 0.02, "draft_step_s": 0.001},
            value=2.801,
            rel=1e-3,
            source="worked case spec-speedup",
        ),
    ),
)

COST_FORMULAS = (
    Formula(
        id="usd_per_hour",
        title="Fleet per hour",
        topic=COST,
        result=Symbol(
            name="usd_per_hour", latex="c_h", meaning="price of the fleet for one hour", unit="USD/hour"
        ),
        template=r"${gpus} \cdot ${usd_per_gpu_hour}",
        parameters=named("gpus", "usd_per_gpu_hour"),
        function=cost.usd_per_hour,
        example=Example(
            inputs={"gpus": 8, "usd_per_gpu_hour": 2.0},
            value=16.0,
            rel=1e-9,
            source="DeepSeek-V3 technical report (arXiv 2412.19437), section 1: H800 at 2 USD an hour",
        ),
    ),
    Formula(
        id="usd_per_million_tokens",
        title="Cost of a million tokens",
        topic=COST,
        result=Symbol(
            name="usd_per_million_tokens", latex="c_M", meaning="price of a million tokens", unit="USD"
        ),
        template=r"\frac{${usd_per_hour}}{3600 \cdot ${tokens_per_s}} \cdot 10^6",
        parameters=named("usd_per_hour", "tokens_per_s"),
        function=cost.usd_per_million_tokens,
        example=Example(
            inputs={"usd_per_hour": 226.75 * 8 * 2, "tokens_per_s": 168e9 / 86_400},
            value=87_072 / 168_000,
            rel=2e-3,
            source="DeepSeek, inference system overview (2025-03-01): 226.75 nodes of 8 at 2 USD, 87,072 USD a day, "
            "168 billion output tokens a day",
        ),
    ),
    Formula(
        id="tokens_per_usd",
        title="Tokens for a dollar",
        topic=COST,
        result=Symbol(
            name="tokens_per_usd", latex="T_{USD}", meaning="output tokens for a dollar", unit="1/USD"
        ),
        template=r"\frac{10^6}{${usd_per_million}}",
        parameters=named("usd_per_million"),
        function=cost.tokens_per_usd,
        example=Example(
            inputs={"usd_per_million": 0.5}, value=2e6, rel=1e-9, source="by hand: two million for a dollar"
        ),
    ),
    Formula(
        id="usd_per_request",
        title="Cost of one request",
        topic=COST,
        result=Symbol(name="usd_per_request", latex="c_r", meaning="price of one request", unit="USD"),
        template=r"\frac{${usd_per_hour}}{3600 \cdot ${rate_per_s}}",
        parameters=named("usd_per_hour", "rate_per_s"),
        function=cost.usd_per_request,
        example=Example(
            inputs={"usd_per_hour": 36.0, "rate_per_s": 10},
            value=0.001,
            rel=1e-9,
            source="definition: 36,000 requests share 36 USD",
        ),
    ),
    Formula(
        id="break_even_rate_per_s",
        title="Traffic at which a fleet is cheaper than an API",
        topic=COST,
        result=Symbol(
            name="break_even_rate_per_s", latex=r"\lambda^*", meaning="requests per second", unit="1/second"
        ),
        template=r"\frac{${usd_per_hour}}{3600 \cdot ${api_usd_per_request}}",
        parameters=named("usd_per_hour", "api_usd_per_request"),
        function=cost.break_even_rate_per_s,
        example=Example(
            inputs={"usd_per_hour": 36.0, "api_usd_per_request": 0.001},
            value=10.0,
            rel=1e-9,
            source="definition: 36 USD pay for 36,000 requests at 0.001 USD",
        ),
    ),
)
