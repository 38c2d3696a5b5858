"""The tornado: exact slopes of the textbook's closed form, draws over all assumptions, and what must hold for any plan."""

from dataclasses import replace

import numpy as np
import pytest

from calc.answer import answer
from calc.assumptions import STEP_MODEL, uncertain
from calc.errors import InputError
from calc.scenario import Scenario
from calc.sensitivity import headline_of, reading_of, sensitivity, sensitivity_json
from calc.sized import answer_on
from presets.resolve import resolve

TEXTBOOK = Scenario(fidelity="textbook", kv_bytes_per_gpu=50e9, prefix_share=0.2)


def found(scenario):
    return sensitivity(answer(resolve(scenario)))


def swings(tornado):
    return {swing.assumption.name: swing for swing in tornado.swings}


@pytest.fixture(scope="module")
def textbook():
    return found(TEXTBOOK)


@pytest.fixture(scope="module")
def expected():
    return found(Scenario())


def test_work_is_proportional_to_the_rate(textbook):
    """Open traffic brings requests per second times GPU seconds each: a fifth more is a fifth more work."""
    swing = swings(textbook)["request rate"]
    assert swing.high.gpus_of_work / textbook.now.gpus_of_work == pytest.approx(1.2)
    assert textbook.now.gpus_of_work / swing.low.gpus_of_work == pytest.approx(1.2)


def test_headroom_multiplies(textbook):
    swing = swings(textbook)["target utilisation"]
    assert swing.high.gpus_of_work / swing.low.gpus_of_work == pytest.approx(1.6 / 1.15)


def test_mfu_acts_on_the_prefill_alone(textbook):
    """10 requests/s x 410 computed tokens x 2 x 13.0e9 FLOP over 312 TFLOP/s at 50% are 0.68 GPUs; at 30%, 5/3 of it."""
    result = answer(resolve(TEXTBOOK))
    prefill = 10 * 512 * 0.8 * 2 * 13.016e9 / (0.5 * 312e12)
    assert result.fleet.prefill_busy == pytest.approx(prefill, rel=2e-3)
    swing = swings(textbook)["MFU of prefill"]
    assert swing.low.gpus_of_work - textbook.now.gpus_of_work == pytest.approx(
        1.3 * prefill * (5 / 3 - 1), rel=5e-3
    )


def test_the_price_moves_dollars_and_no_gpu(expected):
    swing = swings(expected)["price per GPU hour"]
    assert swing.width == pytest.approx(0, abs=1e-9)
    assert swing.low.usd_per_hour < swing.high.usd_per_hour
    low, high = expected.usd_per_hour
    assert low <= expected.now.usd_per_hour <= high


def test_a_typed_room_and_price_are_not_uncertain():
    names = {a.name for a in uncertain(answer(resolve(replace(TEXTBOOK, usd_per_gpu_hour=2.0))))}
    assert not names & {"room for the cache", "price per GPU hour"}


def test_parts_of_the_step_model_are_shown_and_not_added_twice(expected):
    parts = [s for s in expected.swings if s.assumption.part_of]
    assert {s.assumption.part_of for s in parts} == {STEP_MODEL}
    counted = [s for s in expected.swings if not s.assumption.part_of]
    up = [np.log(max(s.low.gpus_of_work, s.high.gpus_of_work) / expected.now.gpus_of_work) for s in counted]
    assert np.log(expected.gpus_of_work.high / expected.now.gpus_of_work) == pytest.approx(
        np.sqrt(np.square(np.maximum(up, 0)).sum())
    )


def test_independent_draws_stay_in_the_range():
    """300 draws, each assumption anywhere between its ends on a logarithmic scale: the range holds nine of ten."""
    result = answer(resolve(TEXTBOOK))
    tornado = sensitivity(result)
    draw = np.random.default_rng(11)
    fields = {
        "rate_per_s": (10 / 1.2, 12),
        "input_tokens": (512 / 1.2, 512 * 1.2),
        "output_tokens": (256 / 1.2, 256 * 1.2),
        "prefix_share": (0.2 / 1.5, 0.3),
        "mfu": (0.3, 0.7),
        "headroom": (0.15, 0.6),
    }
    work = []
    for _ in range(300):
        values = {name: float(np.exp(draw.uniform(*np.log(ends)))) for name, ends in fields.items()}
        drawn = replace(result.inputs, scenario=replace(TEXTBOOK, tp=result.layout.tp, **values))
        work.append(reading_of(answer_on(drawn, result.layout)).gpus_of_work)
    inside = [tornado.gpus_of_work.low <= w <= tornado.gpus_of_work.high for w in work]
    assert np.mean(inside) >= 0.9


def test_acceptance_moves_what_drafts_save():
    """Leviathan's equation 1: 4 drafts yield 1.96 tokens a pass at 53% and 4.01 at 89%; prompts cost the same at both."""
    swing = swings(found(Scenario(draft_tokens=4, tpot_s=None)))["acceptance of drafts"]
    assert (swing.assumption.now, swing.assumption.low_text, swing.assumption.high_text) == (
        "70%",
        "53%",
        "89%",
    )
    saved = swing.low.gpus_of_work / swing.high.gpus_of_work
    assert 1.0 < saved < ((1 - 0.89**5) / (1 - 0.89)) / ((1 - 0.53**5) / (1 - 0.53))
    assert swing.high.tpot_s < swing.low.tpot_s


@pytest.mark.parametrize("scenario", [Scenario(), replace(TEXTBOOK, draft_tokens=4)])
def test_without_drafts_nothing_is_kept_or_lost(scenario):
    assert "acceptance of drafts" not in {a.name for a in uncertain(answer(resolve(scenario)))}


def test_bursts_need_slots_by_whitts_peakedness():
    """0.2 requests/s on llama.cpp's one slot a replica: gaps of CV 3 and equal answers have nine times the variance."""
    tornado = found(Scenario(engine="llama.cpp", rate_per_s=0.2, max_seqs=4))
    swing = swings(tornado)["burstiness of arrivals"]
    assert swing.high.gpus > swing.low.gpus


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(traffic="users", users=64),
        Scenario(model="Qwen/Qwen3-30B-A3B", gpu="h100-sxm5-80gb", rate_per_s=100, prefix_share=0.3),
        Scenario(engine="sglang", fidelity="roofline"),
    ],
)
def test_every_tornado_is_ordered_and_holds_the_answer(scenario):
    tornado = found(scenario)
    assert tornado.gpus[0] <= tornado.now.gpus <= tornado.gpus[1]
    widths = [swing.width for swing in tornado.swings]
    assert widths == sorted(widths, reverse=True)
    assert tornado.all_at_once is None or tornado.all_at_once >= tornado.gpus[1]
    assert headline_of(tornado).startswith(str(tornado.now.gpus))
    assert len(sensitivity_json(tornado)["swings"]) == len(tornado.swings)


def test_an_end_that_breaks_is_said_to():
    """A TPOT target a hair above what the plan reaches: a slower step model misses it."""
    result = answer(resolve(Scenario(users=1, traffic="users", tpot_s=None)))
    alone = result.tpot_s.best
    tornado = found(Scenario(users=1, traffic="users", tpot_s=1.02 * alone))
    assert tornado.swings[0].width == float("inf")
    assert "stops working" in headline_of(tornado)


def test_what_does_not_work_has_no_range():
    result = answer(resolve(Scenario(model="meta-llama/Llama-3.3-70B-Instruct", tp=1)))
    with pytest.raises(InputError, match="only a plan that works"):
        sensitivity(result)
