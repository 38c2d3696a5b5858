"""Schedules watched pass by pass: the lessons' slot use from the running simulator, and what must hold on any requests."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.answer import answer
from calc.batching import static_slot_share
from calc.errors import InputError
from calc.scenario import Scenario
from calc.schedule import Activity, Lane, Scheduling, pass_rows, schedule, trace_of
from calc.schedule_examples import (
    LESSONS,
    Example,
    example_requests,
    lesson_requests,
    link_of,
    long_prompt_requests,
    step_of,
)
from calc.simulation.cluster import Cluster
from calc.simulation.disaggregation import PrefillPool
from calc.simulation.link import Link
from calc.simulation.requests import RequestTable
from calc.simulation.rules import engine_rules
from calc.simulation.step_table import StepTable
from calc.simulation.stepwise import watch
from presets.resolve import resolve

LINK = Link(bandwidth_bytes_per_s=1e9, kv_bytes_per_token=1e6, latency_s=1e-3)
STEP = StepTable.affine(fixed_s=0.02, prefill_s=2e-4, decode_s=1e-3, kv_s=2e-7)


@pytest.mark.parametrize("outputs", LESSONS.values(), ids=str)
def test_the_passes_that_were_watched_have_the_simulators_own_slot_steps(outputs):
    ran = schedule(Scheduling.STATIC, lesson_requests(outputs, rounds=1), STEP, slots=4, token_budget=512)
    assert (ran.result.slot_steps, ran.result.useful_slots) == (ran.slot_steps, ran.useful_slot_steps)
    closed_form = static_slot_share(useful_tokens=sum(outputs), slots=4, longest_tokens=max(outputs))
    assert ran.slot_use == closed_form


def test_continuous_batching_needs_no_more_passes_than_tokens_per_slot_and_the_last_answer():
    requests = lesson_requests((10, 20, 50, 200), rounds=8)
    static, continuous = (
        schedule(one, requests, STEP, slots=4, token_budget=512)
        for one in (Scheduling.STATIC, Scheduling.CONTINUOUS)
    )
    assert static.slot_use == 0.35
    # list scheduling: no slot idles while a request waits, so the end comes within one answer of the mean load
    assert 8 * 280 / 4 <= len(continuous.passes) <= 8 * 280 / 4 + 200
    assert continuous.mean_wait_s < static.mean_wait_s


def test_smaller_chunks_stall_running_answers_less():
    chat = answer(resolve(Scenario(model="textbook-13b", gpu="a100-textbook", fidelity="textbook")))
    step = step_of(chat)
    requests = long_prompt_requests(chat, step, slots=6)
    whole = schedule(Scheduling.CONTINUOUS, requests, step, slots=6, token_budget=512)
    stalls = [
        schedule(Scheduling.CHUNKED, requests, step, slots=6, token_budget=budget).stall.seconds
        for budget in (1024, 512, 256, 128)
    ]
    assert whole.stalls
    assert [whole.stall.seconds, *stalls] == sorted([whole.stall.seconds, *stalls], reverse=True)
    # the stall of an uncut prompt is its own prefill, 2 x 13e9 x tokens / (0.5 x 312e12), and one step beside it
    prefill_s = 2 * 13e9 * int(requests.input_tokens.max()) / (0.5 * 312e12)
    assert prefill_s < whole.stall.seconds < 1.15 * prefill_s


@st.composite
def few_requests(draw):
    count = draw(st.integers(1, 12))
    gaps = draw(st.lists(st.sampled_from([0.0, 0.01, 0.3]), min_size=count, max_size=count))
    tokens = st.lists(st.integers(1, 90), min_size=count, max_size=count)
    return RequestTable(
        arrival_s=np.cumsum(gaps), input_tokens=np.array(draw(tokens)), output_tokens=np.array(draw(tokens))
    )


@settings(deadline=None, max_examples=40)
@given(few_requests(), st.sampled_from(list(Scheduling)), st.integers(1, 5), st.sampled_from([8, 32]))
def test_bars_and_passes_tell_what_the_simulator_did(requests, scheduling, slots, budget):
    ran = schedule(scheduling, requests, STEP, slots=slots, token_budget=budget, link=LINK)
    tokens = sum(len(one.decoding) + len(one.finished_prompts) for one in ran.passes)
    assert tokens == requests.output_tokens.sum()
    assert sum(one.prefill_tokens for one in ran.passes) == requests.input_tokens.sum()
    assert ran.passes[-1].end_s == pytest.approx(ran.result.last_s.max(), abs=1e-9)
    longest = ran.stall.seconds if ran.stall else 0.0
    if scheduling is Scheduling.DISAGGREGATED:
        assert longest <= ran.result.longest_gap_s + 1e-9
    else:
        assert longest == pytest.approx(ran.result.longest_gap_s, abs=1e-9)
        assert ran.slot_use > 0
    assert ran.slot_use <= 1
    rows = {}
    for bar in ran.bars:
        rows.setdefault((bar.lane, bar.slot), []).append(bar)
    allowed = dict(ran.lanes)
    assert all(slot < allowed[lane] for lane, slot in rows)
    for (lane, _), bars in rows.items():
        bars.sort(key=lambda bar: bar.start_s)
        overlap_s = (
            LINK.latency_s if lane is Lane.LINK else 0.0
        )  # the next bytes go while the last ones travel
        assert all(one.end_s <= other.start_s + overlap_s + 1e-9 for one, other in itertools.pairwise(bars))
    computing = [
        bar
        for bar in ran.bars
        if bar.activity in (Activity.PREFILL, Activity.DECODE) and bar.lane in (Lane.SLOTS, Lane.DECODE)
    ]
    assert sum(bar.passes for bar in computing) == ran.useful_slot_steps
    assert len(pass_rows((ran,))) == len(ran.passes)
    assert min(ran.waiting()) >= 0


@settings(deadline=None, max_examples=12)
@given(few_requests(), st.integers(1, 5), st.sampled_from([None, LINK]), st.sampled_from([0, 30]))
def test_a_leap_spelt_out_is_the_passes_it_stands_for(requests, slots, link, window):
    step = StepTable(
        prefill_knots=STEP.prefill_knots,
        decode_knots=STEP.decode_knots,
        base_s=STEP.base_s,
        kv_s=2e-7,
        window=window,
        window_s=1e-6 if window else 0.0,
    )
    rules = engine_rules("vllm", num_blocks=500, block_size=16, max_seqs=slots, token_budget=32)
    cluster = None if link is None else Cluster(prefill=PrefillPool(link=link))
    leaping, ran = watch(requests, rules, step, cluster=cluster)
    walking, walked = watch(requests, rules, step, cluster=cluster, skip=False)
    assert len(leaping) == len(walking)
    order = [sorted(passes, key=lambda one: (one.replica, one.start_s)) for passes in (leaping, walking)]
    for one, other in zip(*order, strict=True):
        assert one.end_s == pytest.approx(other.end_s, abs=1e-9)
        assert (one.replica, one.prefilling, one.decoding) == (
            other.replica,
            other.prefilling,
            other.decoding,
        )
    assert ran.last_s == pytest.approx(walked.last_s, abs=1e-9)


def test_a_run_with_preemptions_is_refused():
    crowd = RequestTable(arrival_s=np.zeros(6), input_tokens=np.full(6, 40), output_tokens=np.full(6, 60))
    with pytest.raises(InputError, match="preemptions"):
        watch(crowd, engine_rules("vllm", num_blocks=12, block_size=16, max_seqs=6), STEP)


def test_prompts_on_an_engine_of_their_own_stall_nobody_and_the_second_token_waits_for_the_link():
    chat = answer(resolve(Scenario(model="textbook-13b", gpu="a100-textbook", fidelity="textbook")))
    step, link = step_of(chat), link_of(chat)
    requests = long_prompt_requests(chat, step, slots=6)
    ran = {
        one: schedule(one, requests, step, slots=6, token_budget=256, link=link)
        for one in (Scheduling.CONTINUOUS, Scheduling.CHUNKED, Scheduling.DISAGGREGATED)
    }
    assert ran[Scheduling.CONTINUOUS].stalls
    apart = ran[Scheduling.DISAGGREGATED]
    assert not apart.stalls
    assert apart.stall.seconds < ran[Scheduling.CHUNKED].stall.seconds
    alone = step.seconds(0, 1, 128.0)
    transfer_s = link.seconds(float(requests.input_tokens.min()))
    assert apart.mean_second_token_s > alone + transfer_s
    links = [bar for bar in apart.bars if bar.lane is Lane.LINK]
    assert len(links) == len(requests)
    assert [bar.end_s - bar.start_s for bar in links] == pytest.approx(
        [link.seconds(float(requests.input_tokens[bar.request])) for bar in links]
    )


@pytest.mark.parametrize("example", Example)
def test_every_example_runs_on_the_scenario(example):
    chat = answer(resolve(Scenario()))
    step = step_of(chat)
    requests = example_requests(example, chat, step, slots=4, rounds=2, seed=0)
    ran = schedule(Scheduling.CHUNKED, requests, step, slots=4, token_budget=256)
    trace = trace_of((ran,))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["tid"] for event in spans} <= set(range(4))
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(1e6 * ran.end_s)
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert names == ["chunked prefill, slots"]


def test_where_nothing_serves_steps_are_equal():
    nothing = answer(resolve(Scenario(model="meta-llama/Llama-2-70b-hf", gpu="rtx-4060", tp=1)))
    assert nothing.fleet is None
    assert step_of(nothing).seconds(512, 3) == step_of(nothing).seconds(0, 1)


def test_a_run_too_long_to_watch_is_refused():
    long = RequestTable(
        arrival_s=np.zeros(1), input_tokens=np.array([8]), output_tokens=np.array([30_000], dtype=np.int64)
    )
    with pytest.raises(InputError, match="can be watched"):
        watch(long, engine_rules("vllm", num_blocks=4000, max_seqs=1), STEP)
