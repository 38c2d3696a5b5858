"""The search: bounds hold, the optimum is never dropped, and a better deal never makes the answer worse."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import InputError, MissingSpec
from calc.format_support import formats_support, served_formats
from calc.layout import Layout
from calc.operators import compile_operators
from calc.plan.pace import pace_of
from calc.plan.screen import Configuration, screen
from calc.plan.search import configured, rank_key, search, within
from calc.plan.space import Limits, Objective, Question, Spare, layouts_of, placed
from calc.plan.stacked import stacks_of
from calc.result import headline
from calc.scenario import Fidelity, Scenario
from calc.step import StepModel
from presets.resolve import accelerator_named, offer_of, resolve, with_profile

MODELS = ("meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite")
GPUS = (
    "l40s",
    "a100-sxm4-80gb",
    "h100-sxm5-80gb",
    "rtx-4090",
    "mi210",
    "mi300x",
    "b200-sxm-180gb",
    "h100-nvl-94gb",
)
MOST = 8


@cache
def inputs_of(model: str, engine: str = "vllm"):
    return replace(resolve(Scenario(model=model, engine=engine)), catalogue=())


@cache
def offer(gpu: str, model: str, engine: str):
    found = offer_of(accelerator_named(gpu))
    return with_profile(found, inputs_of(model, engine).scenario, model)


scenarios = st.builds(
    Scenario,
    model=st.sampled_from(MODELS),
    engine=st.sampled_from(("vllm", "sglang")),
    fidelity=st.sampled_from((Fidelity.EXPECTED, Fidelity.EXPECTED, Fidelity.ROOFLINE)),
    rate_per_s=st.sampled_from((0.3, 3.0, 12.0, 60.0)),
    input_tokens=st.sampled_from((200.0, 1000.0, 6000.0)),
    output_tokens=st.sampled_from((30.0, 250.0, 1000.0)),
    prefix_share=st.sampled_from((0.0, 0.5)),
    reuse_after_s=st.sampled_from((None, None, 60.0)),
    kv_offload=st.sampled_from(("none", "host")),
    tpot_s=st.sampled_from((None, 0.015, 0.04)),
    ttft_s=st.sampled_from((None, 0.3, 2.0)),
)


def question(scenario: Scenario, gpus: tuple[str, ...], **more) -> Question:
    inputs = replace(inputs_of(scenario.model, scenario.engine), scenario=scenario)
    offers = tuple(offer(gpu, scenario.model, scenario.engine) for gpu in gpus)
    return Question(inputs=inputs, offers={scenario.engine: offers}, largest_replica=MOST, **more)


def exhaustive(asked: Question):
    """Every configuration asked in full, one after the other."""
    answers = []
    spec = asked.inputs.spec
    for engine, offers in asked.offers.items():
        for layout, quantization, kv_dtype, scheduling, found in product(
            layouts_of(spec, engine, most=MOST),
            asked.weight_formats,
            asked.kv_formats,
            asked.schedulings,
            offers,
        ):
            there = placed(layout, found.accelerator)
            served = formats_support(served_formats(spec, quantization), kv_dtype, engine, found.accelerator)
            if there is None or not served:
                continue
            configuration = Configuration(
                engine=engine,
                offer=found,
                layout=there,
                quantization=quantization,
                kv_dtype=kv_dtype,
                scheduling=scheduling,
            )
            try:
                answer = within(configured(asked.inputs, configuration), asked)
            except (InputError, MissingSpec):
                continue
            if answer.verdict.fits:
                answers.append(answer)
    return answers


@settings(max_examples=14, deadline=None)
@given(
    scenario=scenarios,
    gpus=st.sets(st.sampled_from(GPUS), min_size=1, max_size=3),
    objective=st.sampled_from(Objective),
    spare=st.sampled_from(Spare),
    tried=st.sampled_from(
        (
            {},
            {"weight_formats": ("auto", "fp8")},
            {"batch_caps": (None, 24)},
            {"chunked_prefill": (True, False), "limits": Limits(whole_nodes=True, spare=Spare.REPLICA)},
            {"prefix_caching": (True, False), "token_budgets": (None, 2048)},
        )
    ),
)
def test_screening_never_drops_the_optimum(scenario, gpus, objective, spare, tried):
    asked = question(
        scenario, tuple(sorted(gpus)), objective=objective, **({"limits": Limits(spare=spare)} | tried)
    )
    found = search(asked, top=1)
    best = min((rank_key(objective, a)[0] for a in exhaustive(asked)), default=inf)
    ranked = [rank_key(objective, plan)[0] for plan in found.plans]
    assert min(ranked, default=inf) == pytest.approx(best, rel=1e-9)
    assert found.proven


@settings(max_examples=20, deadline=None)
@given(
    scenario=scenarios,
    gpu=st.sampled_from(GPUS),
    layout=st.sampled_from(
        (Layout(), Layout(tp=4), Layout(tp=2, pp=2), Layout(tp=4, ep=4), Layout(tp=4, ep=4, attention_dp=4))
    ),
    quantization=st.sampled_from((None, "fp8", "int4-g128")),
)
def test_no_serving_point_is_better_than_the_bounds(scenario, gpu, layout, quantization):
    inputs, found = inputs_of(scenario.model, scenario.engine), offer(gpu, scenario.model, scenario.engine)
    model = StepModel.of(
        inputs.spec,
        found.accelerator,
        layout,
        found.profile,
        fidelity=scenario.fidelity,
        quantization=quantization,
    )
    users = np.unique(np.rint(np.geomspace(1, 1500, 12)))
    prefix = min(scenario.input_tokens * scenario.prefix_share, scenario.input_tokens - 1.0)
    point = model.serving(
        input_tokens=scenario.input_tokens,
        output_tokens=scenario.output_tokens,
        concurrency=users,
        prefix_tokens=prefix,
    )
    operators = compile_operators(inputs.spec, layout, quantization=quantization)
    ((_, stacked),) = stacks_of((found,), Fidelity(scenario.fidelity), operators.formats, {})
    bound = pace_of(
        operators,
        stacked,
        sequences=np.asarray(point.decoding),
        input_tokens=scenario.input_tokens,
        output_tokens=scenario.output_tokens,
        prefix_tokens=prefix,
        schedulers=layout.attention_dp * layout.dp * layout.pp,
        nodes=layout.nodes,
        gpus=layout.gpus_per_replica,
    )
    slack = 1.01
    assert np.all(bound.tpot_s[:, 0] <= point.tpot_s.best * slack)
    assert np.all(bound.ttft_s[:, 0] <= point.ttft_s.best * slack)
    assert np.all(users / point.e2e_s.best <= bound.requests_per_s[:, 0] * slack)


BASE = Scenario(model=MODELS[0], rate_per_s=12.0, input_tokens=1000.0, output_tokens=250.0, tpot_s=0.03)
SOME = ("a100-sxm4-80gb", "h100-sxm5-80gb", "l40s", "rtx-4090")


def reached(asked: Question) -> float:
    plans = [plan for plan in search(asked, top=1).plans if plan.cost.usd_per_hour is not None]
    return min((rank_key(asked.objective, plan)[0] for plan in plans), default=inf)


@settings(max_examples=8, deadline=None)
@given(
    ttft_s=st.floats(0.05, 2.0),
    tpot_s=st.floats(0.008, 0.06),
    looser=st.floats(1.0, 4.0),
    budget=st.floats(1.0, 60.0),
)
def test_looser_targets_and_more_budget_never_cost_more(ttft_s, tpot_s, looser, budget):
    strict = replace(BASE, ttft_s=ttft_s, tpot_s=tpot_s)
    loose = replace(BASE, ttft_s=ttft_s * looser, tpot_s=tpot_s * looser)
    assert reached(question(loose, SOME)) <= reached(question(strict, SOME)) * (1 + 1e-9)
    small = reached(question(strict, SOME, limits=Limits(usd_per_hour=budget)))
    large = reached(question(strict, SOME, limits=Limits(usd_per_hour=budget * looser)))
    assert large <= small * (1 + 1e-9)
    assert small == inf or small <= budget * (1 + 1e-9)


@settings(max_examples=8, deadline=None)
@given(gpu=st.sampled_from(SOME), share=st.floats(0.05, 1.0))
def test_a_cheaper_card_never_makes_the_answer_dearer(gpu, share):
    asked = question(BASE, SOME)
    offers = tuple(
        replace(o, usd_per_gpu_hour=(o.usd_per_gpu_hour or 3.0) * (share if o.accelerator.id == gpu else 1.0))
        for o in asked.offers["vllm"]
    )
    assert reached(replace(asked, offers={"vllm": offers})) <= reached(asked) * (1 + 1e-9)


def test_unpriced_accelerators_are_listed_and_never_ranked_by_cost():
    asked = question(BASE, SOME)
    free = tuple(
        replace(o, usd_per_gpu_hour=None if o.accelerator.id == "h100-sxm5-80gb" else o.usd_per_gpu_hour)
        for o in asked.offers["vllm"]
    )
    plans = search(replace(asked, offers={"vllm": free}), top=4).plans
    prices = [plan.cost.usd_per_hour for plan in plans]
    assert prices[-1] is None
    assert None not in prices[:-1]
    assert plans[-1].inputs.offer.accelerator.id == "h100-sxm5-80gb"
    within_budget = replace(asked, offers={"vllm": free}, limits=Limits(usd_per_hour=1000.0))
    assert all(plan.cost.usd_per_hour is not None for plan in search(within_budget, top=4).plans)


def test_limits_name_their_wall():
    asked = question(BASE, ("l40s",), limits=Limits(available={"l40s": 1}))
    (failed,) = search(asked, top=1).failed
    assert failed.verdict.wall == "availability"
    assert "1 can be had" in failed.verdict.reason
    (failed,) = search(question(BASE, ("l40s",), limits=Limits(usd_per_hour=0.1)), top=1).failed
    assert failed.verdict.wall == "budget"
    (failed,) = search(question(BASE, ("l40s",), limits=Limits(power_w=100.0)), top=1).failed
    assert failed.verdict.wall == "power"


def test_a_spare_node_leaves_the_work_to_the_rest():
    spare = search(
        question(replace(BASE, headroom=0.0), ("a100-sxm4-80gb",), limits=Limits(spare=Spare.NODE)), top=1
    )
    (plan,) = spare.plans
    work = plan.fleet.utilization * plan.fleet.replicas
    lost = max(1, 8 // plan.layout.gpus_per_replica)
    assert plan.fleet.replicas - lost >= work - 1e-9


@pytest.mark.parametrize(
    ("replicas", "layout", "gpu", "bought", "nodes", "gpus"),
    [
        (3.0, Layout(tp=4), "h100-sxm5-80gb", 4, 2, 16),  # two of TP4 in a node of 8
        (3.0, Layout(tp=8), "h100-sxm5-80gb", 3, 3, 24),
        (2.0, Layout(tp=8, pp=2), "h100-sxm5-80gb", 2, 4, 32),  # each over two nodes
        (5.0, Layout(tp=2), "rtx-4090", 6, 3, 12),  # a board of four slots
        (2.0, Layout(tp=16), "gb200-gpu", 2, 8, 32),  # trays of four that one link joins
    ],
)
def test_whole_nodes_are_counted_by_hand(replicas, layout, gpu, bought, nodes, gpus):
    kinds = (accelerator_named(gpu),)
    limits = Limits(whole_nodes=True)
    found = limits.replicas_to_buy(np.array([replicas]), np.array([replicas]), layout, kinds)
    assert found[0] == bought
    assert limits.nodes_of(found, layout, kinds)[0] == nodes
    assert limits.gpus_of(found, layout, kinds)[0] == gpus


def test_whole_nodes_are_paid_for_and_said():
    (plan,) = search(question(BASE, ("a100-sxm4-80gb",), limits=Limits(whole_nodes=True)), top=1).plans
    assert plan.gpus == 8 * plan.nodes
    assert plan.fleet.replicas * plan.layout.gpus_per_replica == plan.gpus
    assert plan.cost.usd_per_hour == pytest.approx(plan.gpus * plan.inputs.offer.usd_per_gpu_hour)
    assert f"({plan.nodes} whole node" in headline(plan)
    alone = search(question(BASE, ("a100-sxm4-80gb",)), top=1).plans[0]
    assert plan.gpus >= alone.gpus
    assert plan.fleet.utilization <= alone.fleet.utilization


def test_fp8_is_never_planned_where_no_engine_serves_it():
    asked = question(BASE, ("mi210",), weight_formats=("auto", "fp8"), kv_formats=("auto", "fp8"))
    screened = screen(asked)
    assert {group.quantization for group in screened.groups} == {"auto"}
    assert {group.kv_dtype for group in screened.groups} == {"auto"}


def test_consumer_cards_stay_in_one_host_and_data_centre_parts_may_leave_it():
    card, board = accelerator_named("rtx-4090"), accelerator_named("h100-sxm5-80gb")
    assert placed(Layout(tp=4), card) is not None
    assert placed(Layout(tp=8), card) is None
    assert placed(Layout(tp=16), board) is None
    assert placed(Layout(tp=8, pp=2), board).nodes == 2
    assert placed(Layout(tp=16, ep=16, attention_dp=16), board).nodes == 2
    assert placed(Layout(tp=32, ep=32), accelerator_named("gb200-gpu")).nodes == 1


def test_a_capped_batch_and_whole_prompts_are_configurations_that_a_page_can_apply():
    asked = question(BASE, ("l40s",), batch_caps=(7,), chunked_prefill=(False,), prefix_caching=(False,))
    (plan,) = search(asked, top=1).plans
    applied = plan.inputs.scenario
    assert (applied.max_seqs, applied.chunked_prefill, applied.prefix_caching) == (7, False, False)
    assert plan.sequences.batch <= 7
    assert plan.gpus >= search(question(BASE, ("l40s",)), top=1).plans[0].gpus


def test_the_catalogue_has_more_than_ten_thousand_candidates():
    inputs = resolve(replace(BASE, model="meta-llama/Llama-3.3-70B-Instruct"))
    assert screen(Question(inputs=inputs, offers={"vllm": inputs.catalogue})).candidates > 10_000
