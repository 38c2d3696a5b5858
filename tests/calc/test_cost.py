"""Costs: published arithmetic, and that the prices of all tokens pay for the fleet exactly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import cost
from calc.errors import InputError

# DeepSeek, "DeepSeek-V3/R1 inference system overview" (2025-03-01): on average 226.75 nodes of 8 H800 at 2 USD an hour
# cost 87,072 USD a day.
DEEPSEEK_GPUS = 226.75 * 8


def test_a_published_fleet_costs_what_its_owner_says():
    assert cost.usd_per_hour(gpus=DEEPSEEK_GPUS, usd_per_gpu_hour=2) * 24 == pytest.approx(87_072)


def test_h800_training_hours_cost_what_the_report_says():
    # arXiv 2412.19437, table 1: 2.788 million GPU hours cost 5.576 million USD.
    assert cost.usd_per_hour(gpus=2.788e6, usd_per_gpu_hour=2) == pytest.approx(5.576e6)


def test_a_month_has_730_hours():
    assert cost.usd_per_month(usd_per_hour=1.0) == 730.0
    assert cost.usd_per_user_month(usd_per_hour=10.0, users=100) == pytest.approx(73.0)


def test_three_a100s_by_hand():
    """3 GPUs at 2 USD serve 10 requests/s of 256 tokens: 6 USD an hour over 9.216 million tokens."""
    hour = cost.usd_per_hour(gpus=3, usd_per_gpu_hour=2.0)
    assert cost.usd_per_million_tokens(usd_per_hour=hour, tokens_per_s=2560) == pytest.approx(6 / 9.216)
    assert cost.usd_per_request(usd_per_hour=hour, rate_per_s=10) == pytest.approx(6 / 36_000)


@settings(deadline=None, max_examples=100)
@given(
    rate=st.floats(0.01, 1000),
    input_tokens=st.floats(1, 1e5),
    output_tokens=st.floats(1, 1e5),
    prefill=st.floats(0.01, 100),
    decode=st.floats(0.01, 100),
    prefix_share=st.floats(0, 0.99),
)
def test_token_prices_pay_for_the_fleet(*, rate, input_tokens, output_tokens, prefill, decode, prefix_share):
    prices = cost.token_prices(
        usd_per_hour=36.0,
        rate_per_s=rate,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        prefill_gpus=prefill,
        decode_gpus=decode,
        prefix_share=prefix_share,
    )
    each = cost.api_usd_per_request(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        input_usd_per_million=prices.input_usd_per_million,
        output_usd_per_million=prices.output_usd_per_million,
        cached_usd_per_million=prices.cached_usd_per_million,
        prefix_share=prefix_share,
    )
    assert each == pytest.approx(cost.usd_per_request(usd_per_hour=36.0, rate_per_s=rate))


def test_break_even_is_where_both_cost_the_same():
    api = cost.api_usd_per_request(
        input_tokens=512, output_tokens=256, input_usd_per_million=0.2, output_usd_per_million=0.6
    )
    rate = cost.break_even_rate_per_s(usd_per_hour=6.0, api_usd_per_request=api)
    assert cost.usd_per_request(usd_per_hour=6.0, rate_per_s=rate) == pytest.approx(api)


def test_an_owned_gpu():
    """30,000 USD over 3 years, half used: 2.283 USD an hour; 1 kW at 0.10 USD/kWh adds 0.10."""
    hour = cost.owned_usd_per_gpu_hour(
        purchase_usd=30_000, years=3, watts=1000, usd_per_kwh=0.1, utilisation=0.5
    )
    assert hour == pytest.approx(30_000 / 13_140 + 0.1)


def test_joules_per_token():
    assert cost.joules_per_token(gpus=2, power_w=700, tokens_per_s=2800) == pytest.approx(0.5)


def test_arrays_broadcast():
    prices = cost.usd_per_million_tokens(usd_per_hour=np.array([1.0, 2.0]), tokens_per_s=1000.0)
    assert prices == pytest.approx([1 / 3.6, 2 / 3.6])


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: cost.usd_per_hour(gpus=-1, usd_per_gpu_hour=1), "gpus"),
        (lambda: cost.usd_per_million_tokens(usd_per_hour=1, tokens_per_s=0), "tokens_per_s"),
        (lambda: cost.break_even_rate_per_s(usd_per_hour=1, api_usd_per_request=0), "api_usd_per_request"),
        (
            lambda: cost.owned_usd_per_gpu_hour(
                purchase_usd=1, years=1, watts=1, usd_per_kwh=1, utilisation=0
            ),
            "utilisation",
        ),
    ],
)
def test_refusals(call, field):
    with pytest.raises(InputError) as refused:
        call()
    assert refused.value.field == field
