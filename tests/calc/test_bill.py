"""The bill: by hand from the answer's own GPUs, and that every way to divide it adds up again."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from calc import cost
from calc.answer import answer
from calc.bill import ApiPrices, Day, Market, Owned, bill_of, day_rates, replica_rate_per_s
from calc.energy import token_joules, watts_per_gpu
from calc.errors import InputError
from calc.scenario import Scenario
from presets.resolve import resolve

SCENARIO = Scenario(fidelity="textbook", kv_bytes_per_gpu=50e9, prefix_share=0.25, usd_per_gpu_hour=2.0, tp=1)
MARKET = Market(
    reserved_usd=1.2,
    spot_usd=0.9,
    spot_interruptions_per_day=4,
    owned=Owned(purchase_usd=20_000, years=4, usd_per_kwh=0.10, overhead_factor=1.4),
    api=ApiPrices(input_usd_per_million=0.2, output_usd_per_million=0.6, cached_usd_per_million=0.05),
    requests_per_user_day=40,
    day=Day(peak_factor=2.0, read_bytes_per_s=1e9, provision_s=100, warm_up_s=20, hold_s=300),
)


@pytest.fixture(scope="module")
def result():
    return answer(resolve(SCENARIO))


@pytest.fixture(scope="module")
def bill(result):
    return bill_of(result, MARKET)


def of(bill, name):
    return next(tenure for tenure in bill.tenures if tenure.name == name)


def test_renting_by_hand(result, bill):
    """Three GPUs at 2 USD: 6 USD an hour, 4,380 a month, over 10 requests/s of 256 tokens."""
    rented = of(bill, "on demand")
    assert result.gpus == 3
    assert rented.usd_per_hour == pytest.approx(6.0)
    assert rented.usd_per_month == pytest.approx(4380.0)
    assert rented.usd_per_million_output == pytest.approx(6.0 / (3600 * 10 * 256) * 1e6)
    assert rented.usd_per_request == pytest.approx(6.0 / 36_000)
    assert of(bill, "reserved").usd_per_hour == pytest.approx(3.6)


def test_users_by_hand(bill):
    """A peak of 10/s twice the mean is 432,000 requests a day: 10,800 people of 40 requests."""
    assert bill.users == pytest.approx(10_800)
    assert of(bill, "on demand").usd_per_user_month == pytest.approx(4380 / 10_800)


def test_spot_pays_for_what_interruptions_lose(bill):
    """26 GB at 1 GB/s, and 120 s around it: 146 s four times a day."""
    lost = 4 * (26.03 + 120) / 86_400
    assert of(bill, "spot").usd_per_gpu_hour == pytest.approx(0.9 / (1 - lost), rel=1e-4)


def test_owning_by_hand(bill):
    capital = 20_000 / (4 * 8760)
    power = bill.watts_per_gpu.best * 1.4 / 1000 * 0.10
    assert of(bill, "owned").usd_per_gpu_hour == pytest.approx(capital + power)


def test_all_tokens_together_pay_for_the_fleet(bill):
    prices = of(bill, "on demand").prices
    each = (
        512 * 0.75 * prices.input_usd_per_million
        + 512 * 0.25 * prices.cached_usd_per_million
        + 256 * prices.output_usd_per_million
    ) / 1e6
    assert each == pytest.approx(6.0 / 36_000)
    assert 0 < prices.cached_usd_per_million < prices.input_usd_per_million


def test_an_api_by_hand(result, bill):
    each = (512 * (0.75 * 0.2 + 0.25 * 0.05) + 256 * 0.6) / 1e6
    assert bill.api.usd_per_request == pytest.approx(each)
    assert bill.api.usd_per_month == pytest.approx(each * 10 * 3600 * 730)
    cheapest = min(t.usd_per_gpu_hour for t in bill.tenures)
    assert bill.api.break_even_per_s * 3600 * each == pytest.approx(cheapest)
    assert bill.api.break_even_per_s <= replica_rate_per_s(result)


def test_an_api_that_is_cheaper_than_a_full_replica_is_never_beaten(result):
    cheap = replace(MARKET, api=ApiPrices(input_usd_per_million=0.001, output_usd_per_million=0.001))
    assert bill_of(result, cheap).api.break_even_per_s is None


def test_the_day_is_a_von_mises_day():
    """Peak over mean as asked; shape by scipy's density."""
    rates = day_rates(peak_per_s=30.0, peak_factor=2.5)
    assert rates.max() == pytest.approx(30.0)
    assert rates.max() / rates.mean() == pytest.approx(2.5, rel=1e-6)
    angle = 2 * np.pi * np.arange(rates.size) / rates.size
    k = np.log(rates.max() / rates.min()) / 2
    density = stats.vonmises.pdf(angle, k, loc=np.pi)
    assert rates / rates.sum() == pytest.approx(density / density.sum())


def test_following_the_day_by_the_integral(result):
    """With many replicas and instant starts the following fleet pays the mean over the peak of the fixed one."""
    many = answer(resolve(replace(SCENARIO, rate_per_s=2000.0)))
    instant = replace(
        MARKET, day=Day(peak_factor=2.0, read_bytes_per_s=1e15, provision_s=0, warm_up_s=0, hold_s=0)
    )
    assert bill_of(many, instant).day.saved_share == pytest.approx(0.5, abs=0.01)
    slow = bill_of(result, MARKET).day
    assert slow.start_s == pytest.approx(146.03, abs=0.01)
    assert 0 <= slow.saved_share < 0.5


def test_watts_lie_where_the_phases_were_measured():
    """Decode alone on a 700 W H200: 137 to 300 W were measured (arXiv 2605.11999); prompts alone: at the limit."""
    decode = watts_per_gpu(power_limit_w=700, prefill_share=0.0, decode_share=1.0)
    assert decode.low <= 140
    assert decode.low <= decode.best <= 300
    assert watts_per_gpu(power_limit_w=700, prefill_share=1.0, decode_share=0.0).high == 700
    assert token_joules(decode, gpus=2, tokens_per_s=1000).best == pytest.approx(2 * decode.best / 1000)


def test_energy_of_the_fleet_adds_up(result, bill):
    assert bill.kilowatts.best == pytest.approx(bill.watts_per_gpu.best * 3 / 1000)
    assert bill.joules_per_token.best == pytest.approx(bill.watts_per_gpu.best * 3 / 2560)


def test_spot_arithmetic_is_exact():
    assert cost.spot_usd_per_gpu_hour(
        usd_per_gpu_hour=1.0, interruptions_per_day=24, lost_s=360
    ) == pytest.approx(1 / 0.9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Market(reserved_usd=0),
        lambda: Owned(purchase_usd=-1),
        lambda: ApiPrices(input_usd_per_million=-1, output_usd_per_million=1),
        lambda: watts_per_gpu(power_limit_w=700, prefill_share=0.7, decode_share=0.7),
        lambda: cost.spot_usd_per_gpu_hour(usd_per_gpu_hour=1, interruptions_per_day=400, lost_s=400),
        lambda: bill_of(answer(resolve(replace(SCENARIO, rate_per_s=0.0))), MARKET),
        lambda: bill_of(answer(resolve(Scenario(model="meta-llama/Llama-3.3-70B-Instruct", tp=1))), MARKET),
    ],
)
def test_refusals(call):
    with pytest.raises(InputError):
        call()
