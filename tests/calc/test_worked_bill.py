"""Every number of a bill comes out again from its formula, whatever the tenure."""

from math import isclose

import pytest

from calc.answer import answer
from calc.bill import ApiPrices, Market, Owned, bill_of
from calc.formulas import FORMULAS
from calc.formulas.bill_formulas import BILL_FORMULAS
from calc.scenario import Scenario
from calc.worked.bill import worked_beside_the_tenures, worked_tenure
from presets.resolve import resolve

MARKET = Market(
    reserved_usd=1.1,
    spot_usd=0.7,
    owned=Owned(purchase_usd=25_000),
    api=ApiPrices(input_usd_per_million=1.0, output_usd_per_million=3.0, cached_usd_per_million=0.1),
)


@pytest.fixture(scope="module", params=["expected", "textbook"])
def result(request):
    return answer(resolve(Scenario(fidelity=request.param, prefix_share=0.25, input_tokens=2000.0)))


def wrong(lines):
    return [
        (line.formula, line.about, FORMULAS[line.formula].value(line.inputs), line.result)
        for line in lines
        if not isclose(FORMULAS[line.formula].value(line.inputs), line.result, rel_tol=1e-9)
    ]


def test_every_tenure_is_worked_out(result):
    bill = bill_of(result, MARKET)
    assert [tenure.name for tenure in bill.tenures] == ["on demand", "reserved", "spot", "owned"]
    lines = [line for t in bill.tenures for line in worked_tenure(result, MARKET, bill, t)]
    assert not wrong(lines)
    beside = worked_beside_the_tenures(result, MARKET, bill)
    assert not wrong(beside)
    used = {line.formula for line in (*lines, *beside)}
    assert {record.id for record in BILL_FORMULAS} <= used | {"watts_per_user"}  # which the frontier has
    assert {"usd_per_hour", "usd_per_request", "break_even_rate_per_s"} <= used


def test_a_row_has_a_formula_for_each_of_its_prices(result):
    bill = bill_of(result, MARKET)
    for tenure in bill.tenures:
        shown = {
            tenure.usd_per_hour,
            tenure.usd_per_month,
            tenure.usd_per_request,
            float(tenure.prices.input_usd_per_million),
            float(tenure.prices.cached_usd_per_million),
            float(tenure.prices.output_usd_per_million),
        }
        assert shown <= {line.result for line in worked_tenure(result, MARKET, bill, tenure)}


def test_the_three_prices_pay_for_the_fleet(result):
    """Allocation is a division: tokens of each kind times their prices are the hour's dollars."""
    (tenure, *_) = bill_of(result, MARKET).tenures
    cached = result.prefill.cached_share
    prompts, made = result.fleet.rate_per_s * 2000.0, result.output_tokens_per_s
    prices = tenure.prices
    per_s = (
        prompts * (1 - cached) * prices.input_usd_per_million
        + prompts * cached * prices.cached_usd_per_million
        + made * prices.output_usd_per_million
    )
    assert per_s * 3600 / 1e6 == pytest.approx(tenure.usd_per_hour)


def test_without_a_market_there_is_only_what_is_known(result):
    bill = bill_of(result, Market())
    lines = worked_beside_the_tenures(result, Market(), bill)
    assert not wrong(lines)
    assert "api_usd_per_request" not in {line.formula for line in lines}
