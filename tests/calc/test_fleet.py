"""A fleet on shared stock: every combination tried by hand, adapters by the paper's count, tables row by row."""

import itertools
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.answer import answer
from calc.errors import InputError
from calc.fleet import Budget, FleetRow, Stock, plan_fleet
from calc.fleet_table import fleet_rows, placed_rows, stocks_of
from calc.memory.adapters import adapter_bytes_per_gpu
from calc.scenario import Scenario
from presets.resolve import resolve

KINDS = ("a100-sxm4-80gb", "h100-sxm5-80gb", "l40s")
BASE = Scenario(fidelity="textbook", tpot_s=None)


def row(name, model, rate, **more):
    return FleetRow(name=name, scenario=replace(BASE, model=model, rate_per_s=rate), **more)


ROWS = (
    row("chat", "meta-llama/Llama-2-13b-hf", 20.0, region="eu"),
    row("small", "Qwen/Qwen3-8B", 60.0, region="eu"),
    row("code", "meta-llama/Llama-3.3-70B-Instruct", 5.0, region="us"),
    row("tiny", "Qwen/Qwen3-0.6B", 100.0, region="us"),
)


@cache
def ask(deployment, kind):
    return answer(resolve(replace(deployment.scenario, gpu=kind)))


def brute_force(budget):
    """The cheapest of all combinations, by trying them all."""
    options = [[a for kind in KINDS if (a := ask(r, kind)).verdict.fits] for r in ROWS]
    best = None
    for combination in itertools.product(*options):
        held = all(
            sum(
                a.gpus
                for r, a in zip(ROWS, combination, strict=True)
                if a.inputs.offer.accelerator.id == stock.gpu and stock.region in ("", r.region)
            )
            <= stock.most
            for stock in budget.stocks
        )
        cost = sum(a.cost.usd_per_hour for a in combination)
        if held and (budget.usd_per_hour is None or cost <= budget.usd_per_hour):
            best = cost if best is None else min(best, cost)
    return best


@settings(deadline=None, max_examples=40)
@given(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 12)),
    st.sampled_from(["", "eu", "us"]),
    st.none() | st.floats(1, 60),
)
def test_no_combination_is_cheaper(counts, region, usd):
    budget = Budget(
        stocks=tuple(Stock(gpu=k, most=n, region=region) for k, n in zip(KINDS, counts, strict=True)),
        usd_per_hour=usd,
    )
    found = plan_fleet(ROWS, ask, KINDS, budget)
    cheapest = brute_force(budget)
    everyone = all(place.answer is not None for place in found.placed)
    assert found.exact
    assert everyone == (cheapest is not None)
    if everyone:
        assert found.usd_per_hour == pytest.approx(cheapest)
        assert found.short == ()
    else:
        assert found.short
    for stock in budget.stocks:
        taken = sum(
            place.gpus
            for place in found.placed
            if place.answer is not None
            and place.answer.inputs.offer.accelerator.id == stock.gpu
            and stock.region in ("", place.row.region)
        )
        assert taken <= stock.most


def test_without_limits_each_row_takes_its_cheapest():
    found = plan_fleet(ROWS, ask, KINDS, Budget())
    for place in found.placed:
        options = [a.cost.usd_per_hour for kind in KINDS if (a := ask(place.row, kind)).verdict.fits]
        assert place.usd_per_hour == min(options)
    assert found.rate_per_s == pytest.approx(185.0)
    assert sum(found.gpus.values()) == sum(place.gpus for place in found.placed)


def test_what_fits_nowhere_is_said_and_the_others_are_placed():
    rows = (*ROWS[:1], row("huge", "deepseek-ai/DeepSeek-V3", 1.0, gpus=("l40s",)))
    found = plan_fleet(rows, ask, KINDS, Budget())
    assert found.placed[0].answer is not None
    assert found.placed[1].answer is None
    assert "weights alone" in found.placed[1].why


def test_thousands_of_requests_per_second():
    """Work grows with the rate: a hundred times the traffic keeps a hundred times the GPUs busy."""
    one_card = replace(BASE, model="Qwen/Qwen3-0.6B", tp=1)
    many = plan_fleet(
        (FleetRow(name="many", scenario=replace(one_card, rate_per_s=5000.0)),), ask, KINDS[:1], Budget()
    )
    few = plan_fleet(
        (FleetRow(name="few", scenario=replace(one_card, rate_per_s=50.0)),), ask, KINDS[:1], Budget()
    )
    assert many.placed[0].answer.fleet.busy / few.placed[0].answer.fleet.busy == pytest.approx(100, rel=1e-6)


# ---- adapters


def test_adapters_by_the_papers_count():
    """Llama 2 7B, rank 8, on every matrix of attention and feed-forward: 32 x 8 x (4 x 8,192 + 3 x 15,104) elements."""
    spec = resolve(replace(BASE, model="meta-llama/Llama-2-7b-hf")).spec
    elements = 32 * 8 * (4 * (4096 + 4096) + 3 * (4096 + 11008))
    assert elements == 19_988_480  # as peft reports for r = 8 on all linear layers
    assert adapter_bytes_per_gpu(spec, adapters=1, rank=8) == 2 * elements
    assert adapter_bytes_per_gpu(spec, adapters=20, rank=16) == 2 * elements * 40
    assert adapter_bytes_per_gpu(spec, adapters=1, rank=8, tp=2) < 2 * elements


def test_adapters_take_room_and_time():
    """100 adapters of rank 64 on a 13B model leave less cache and a slower step than none."""
    plain = answer(resolve(Scenario(tp=1)))
    adapted = answer(resolve(Scenario(tp=1, adapters=40, adapter_rank=32)))
    spec = plain.inputs.spec
    taken = adapter_bytes_per_gpu(spec, adapters=40, rank=32)
    assert plain.memory.kv_bytes_per_gpu - adapted.memory.kv_bytes_per_gpu == pytest.approx(taken, rel=0.01)
    assert adapted.sequences.fit < plain.sequences.fit
    assert adapted.fleet.busy > plain.fleet.busy


# ---- tables


def test_a_table_becomes_rows():
    records = [
        {
            "name": "chat",
            "model": "m/a",
            "rate_per_s": "3",
            "input_tokens": "100",
            "output_tokens": 50.0,
            "gpu": "l40s t4",
        },
        {
            "model": "m/b",
            "users": 8,
            "input_tokens": 10,
            "output_tokens": 10,
            "tpot_s": "0.05",
            "region": "eu",
        },
        {"model": "", "rate_per_s": None},
    ]
    first, second = fleet_rows(records, Scenario())
    assert (first.name, first.gpus, first.scenario.rate_per_s) == ("chat", ("l40s", "t4"), 3.0)
    assert (second.name, second.region, second.scenario.traffic) == ("m/b", "eu", "users")
    assert second.scenario.tpot_s == 0.05


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"model": "m", "rate_per_s": 1, "input_tokens": 1}, "row 1, output_tokens"),
        ({"model": "m", "rate_per_s": "x", "input_tokens": 1, "output_tokens": 1}, "row 1, rate_per_s"),
        ({"model": "m", "input_tokens": 1, "output_tokens": 1}, "requests per second, or users"),
        ({"modle": "m"}, "the columns are"),
    ],
)
def test_bad_rows_are_named(record, said):
    with pytest.raises(InputError, match=said):
        fleet_rows([record], Scenario())


def test_stocks_are_read():
    assert stocks_of(["l40s=8", "eu:h100-sxm5-80gb=16"]) == (
        Stock(gpu="l40s", most=8),
        Stock(gpu="h100-sxm5-80gb", most=16, region="eu"),
    )
    with pytest.raises(InputError, match="GPU=N"):
        stocks_of(["l40s"])
    for count in ("\u00b2", "1" * 5000, "", "-1", "1.5"):
        with pytest.raises(InputError, match="GPU=N"):
            stocks_of([f"l40s={count}"])


def test_results_are_rows_again():
    rows = placed_rows(plan_fleet(ROWS[:1], ask, KINDS, Budget()))
    assert rows[0]["name"] == "chat"
    assert rows[0]["gpus"] >= 1
    assert rows[0]["why"] is None


def test_a_fleet_has_rows():
    with pytest.raises(InputError, match="from 1 to"):
        plan_fleet((), ask, KINDS, Budget())
