"""Simulate traffic: what is added to the scheduler changes the run, is told, and is refused where an engine lacks it."""

import re

import pytest
from reading import text_of, titles

from calc.answer import answer
from calc.traffic import Source, generated, run
from presets.resolve import resolve

pytestmark = pytest.mark.app

CHAT = {
    "model": "meta-llama/Llama-2-13b-hf", "gpu": "a100-sxm4-80gb", "rate": "4", "input": "600", "output": "120",
    "ttft": "2", "tpot": "0.08", "sim_n": "1000",
}  # fmt: skip


def metrics(app):
    return {metric.label: metric.value for metric in app.metric}


def captions(app):
    return " ".join(caption.value for caption in app.caption)


def simulated(open_page, **more):
    app = open_page("simulate.py", **{**CHAT, **more})
    app.button(key="sim-run").click().run()
    assert not app.exception
    return app


def test_pools_and_drafts_are_told(open_page):
    app = simulated(open_page, sim_prefill="1", sim_drafts="3", sim_accept="0.8")
    assert "the p99 TTFT is" in titles(app)[0]
    assert "Between pools" in captions(app)
    assert "tokens a pass and sequence" in captions(app)
    app.number_input(key="sim_drafts").set_value(4).run()
    assert "Simulate every request" in titles(app)[0]


def test_how_many_replicas_hold_is_answered_in_place(open_page):
    app = simulated(open_page)
    assert metrics(app)["State"] in {"stable", "near saturation"}
    app.button(key="sim-held").click().run()
    assert not app.exception
    assert any("the targets" in box.value and "replica" in box.value for box in app.info)


def test_an_engine_without_an_idea_refuses_it(open_page):
    app = open_page("simulate.py", **CHAT, engine="sglang", sim_prefill="1")
    app.button(key="sim-run").click().run()
    assert any("prefill_pool" in text_of(box) for box in app.error)


def test_the_title_says_where_the_promise_breaks(open_page):
    """The rate it names holds when it is offered, and a tenth more does not."""
    app = simulated(open_page, rate="10")
    breaks = float(re.search(r"the promise breaks above (\d+(?:\.\d+)?)", titles(app)[0])[1])
    planned = answer(resolve(app.session_state["_scenario"]))
    workload, slo = planned.inputs.scenario.workload, planned.inputs.scenario.slo
    holds = []
    for rate in (0.97 * breaks, 1.1 * breaks):
        asked = generated(workload, Source.SCENARIO, rate_per_s=rate, count=1000, seed=0)
        holds.append(run(planned, asked, replicas=planned.fleet.replicas).holds(slo))
    assert holds == [True, False]


def test_without_a_target_the_title_tells_who_was_served(open_page):
    app = simulated(open_page, ttft_s="none", tpot_ms="none")
    assert "meet every target" in titles(app)[0]
