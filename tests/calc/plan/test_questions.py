"""Ten planning questions: the stated targets hold in simulation, the limit is named, and nothing cheaper was passed over."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from math import exp, log, sqrt

import pytest

from calc.answer import answer
from calc.contract import endpoint_json
from calc.plan.ranking import rank, ranked
from calc.plan.search import rank_key
from calc.plan.space import EVERY_WEIGHT_FORMAT, Objective, question_of
from calc.plan.verify import verify
from calc.proof import prove
from calc.result import headline
from calc.scenario import Scenario
from calc.verdict import Wall
from presets.resolve import accelerator_named, offer_of, resolve, with_profile

pytestmark = pytest.mark.reference
BINDING = ("kv memory", "tpot", "ttft", "end to end", "engine", "sequence limit")


@pytest.fixture(scope="module")
def questions(cases):
    with (cases / "plans.toml").open("rb") as file:
        return {entry["id"]: entry for entry in tomllib.load(file)["question"]}


def scenario_of(question, **more) -> Scenario:
    closed = "concurrency" in question
    given = {
        "model": question["model"],
        "gpu": question.get("gpus", ["a100-sxm4-80gb"])[0],
        "traffic": "users" if closed else "rate",
        "users": question.get("concurrency", 1),
        "rate_per_s": float(question.get("rate", 1.0)),
        "arrival_cv": float(question.get("arrival_cv", 1.0)),
        "input_tokens": float(question["input"]),
        "output_tokens": float(question["output"]),
        "prefix_share": question.get("prefix_share", 0.0),
        "ttft_s": question.get("ttft_s"),
        "tpot_s": question.get("tpot_s"),
        "percentile": question.get("percentile"),
        "kv_bytes_per_gpu": question.get("kv_bytes_per_gpu"),
        "fidelity": question.get("fidelity", "expected"),
    }
    return Scenario(**{**given, **more})


def asked(scenario: Scenario, gpus=None):
    inputs = resolve(scenario)
    named = tuple(with_profile(offer_of(accelerator_named(g)), scenario, inputs.spec.id) for g in gpus or ())
    return question_of(inputs, named or None)


def proven(scenario: Scenario, gpus=None, *, top: int = 3):
    """The verified best plan, with what every answer owes: a limit by name, arithmetic that adds up, nothing cheaper left."""
    question = asked(scenario, gpus)
    ranking = ranked(question, top=top)
    assert ranking.proven
    verified = verify(ranking, question)
    best = verified.best
    plan, proof = best.plan, best.proof
    assert plan.sequences.binding in BINDING
    assert plan.fleet.busy == pytest.approx(plan.fleet.utilization * plan.fleet.replicas)
    assert plan.fleet.active == pytest.approx(plan.fleet.rate_per_s * plan.fleet.e2e_s.best, rel=0.02)
    assert proof.proven.holds(proof.slo)
    assert proof.proven.state != "saturated"
    assert proof.breaks_at_per_s >= proof.rate_per_s
    assert plan.fleet.replicas >= proof.replicas
    tried = {p.planned.inputs.offer.accelerator.id for p in verified.tried}
    for other in ranking.plans:
        passed_over = other.inputs.offer.accelerator.id not in tried
        if passed_over and other.cost.usd_per_hour is not None:
            assert rank_key(question.objective, other) >= rank_key(question.objective, plan)
    return plan, proof


def test_chat_13b_is_the_textbooks_three_cards(questions):
    question = questions["chat-13b"]
    scenario = scenario_of(question, model="textbook-13b", gpu="a100-textbook")
    inputs = resolve(scenario)
    (plan,) = rank(inputs, (inputs.offer,)).plans
    assert plan.gpus == question["textbook_answer"]


@pytest.mark.parametrize("cv", [1.0, 3.0])
def test_coding_70b_on_h100_nodes(questions, cv):
    question = questions["coding-70b"]
    plan, proof = proven(scenario_of(question, arrival_cv=cv), question["gpus"])
    assert proof.proven.spread("ttft_s").p99 <= question["ttft_s"]
    assert proof.proven.spread("tpot_s").p99 <= question["tpot_s"]
    assert plan.layout.gpus_per_replica <= 8


@pytest.mark.parametrize("cv", [1.0, 3.0])
def test_ten_million_documents_a_day(questions, cv):
    plan, _ = proven(scenario_of(questions["summarise-10m"], arrival_cv=cv), top=2)
    assert plan.fleet.rate_per_s * 86_400 == pytest.approx(10e6, rel=1e-3)
    assert plan.cost.usd_per_hour is not None


def lognormal_cv(mean: float, median: float) -> float:
    """Of a lognormal length with this mean and median: sigma^2 = 2 ln(mean/median)."""
    return sqrt(exp(2.0 * log(mean / median)) - 1.0)


def test_reasoning_32b_with_heavy_tails(questions):
    scenario = scenario_of(
        questions["reasoning-32b"],
        input_shape="lognormal",
        input_cv=min(3.0, lognormal_cv(1252, 208)),
        output_shape="lognormal",
        output_cv=lognormal_cv(1533, 795),
    )
    proven(scenario, ["h100-sxm5-80gb", "a100-sxm4-40gb"], top=2)


def test_rag_with_a_shared_prefix(questions):
    proven(scenario_of(questions["rag-long"]), ["b200-sxm-180gb", "mi300x"], top=2)


def test_deepseek_v3_on_h200_against_b200(questions):
    question = questions["deepseek-v3"]
    scenario = scenario_of(question)
    plan, _ = proven(scenario, question["gpus"], top=2)
    both = ranked(asked(scenario, question["gpus"]), top=2).plans
    assert {p.inputs.offer.accelerator.id for p in both} == set(question["gpus"])
    assert plan.layout.attention_dp > 1  # latents of every rank's own sequences, not eight copies


def test_gpt_oss_120b_under_bursts(questions):
    proven(scenario_of(questions["gpt-oss-120b-bursty"]), ["h100-sxm5-80gb", "b200-sxm-180gb"], top=2)


def test_one_4090_at_home_which_model_and_how_fast(questions):
    question = questions["one-4090"]
    found = {}
    for model in ("meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-32B"):
        scenario = scenario_of({**question, "model": model}, engine="llama.cpp", tp=1)
        about = replace(
            asked(scenario, question["gpus"]),
            weight_formats=EVERY_WEIGHT_FORMAT,
            objective=Objective.THROUGHPUT,
        )
        (found[model],) = ranked(about, top=1).plans
    small, large = found.values()
    assert small.gpus == large.gpus == 1
    assert small.inputs.scenario.quantization == large.inputs.scenario.quantization == "q4_k_m"
    # Public llama.cpp runs of Llama 3 8B Q4_K_M on this card make 128 to 150 tokens/s with a short context.
    assert 70 < 1.0 / small.tpot_s.best < 170
    assert large.tpot_s.best > 3.0 * small.tpot_s.best
    whole = prove(
        answer(
            resolve(scenario_of({**question, "model": "meta-llama/Meta-Llama-3.1-8B"}, quantization="fp8"))
        )
    )
    assert whole.holds


@pytest.mark.parametrize(("service_s", "replicas"), [(0.020, 2), (0.010, 1)])
def test_an_endpoint_of_forty_requests(questions, service_s, replicas):
    question = questions["endpoint-40"]
    assert service_s in question["service_s"]
    record = endpoint_json(
        rate_per_s=question["rate"], service_s=service_s, limit_s=question["p95_s"], percentile=95.0
    )
    assert record["plans"][0]["replicas"] == replicas


@pytest.mark.parametrize("quantization", ["bf16", "auto"])
def test_405b_on_8_gb_names_the_wall_and_what_is_near(questions, quantization):
    question = questions["laptop-405b"]
    result = answer(resolve(scenario_of(question, quantization=quantization)))
    assert result.verdict.wall is Wall.WEIGHT_MEMORY
    assert result.verdict.short_by > 300e9
    assert "of weights alone" in headline(result)
    assert 1 <= len(result.verdict.nearest) <= 3
    ranking = ranked(asked(scenario_of(question, quantization=quantization), question["gpus"]), top=1)
    assert ranking.plans == ()
    assert ranking.failed[0].verdict.wall is Wall.WEIGHT_MEMORY
