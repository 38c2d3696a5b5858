"""Every worked formula gives the number that the product shows, over models, layouts, engines and fidelities."""

from dataclasses import replace
from math import isclose

import numpy as np
import pytest

from calc.answer import answer
from calc.formulas import FORMULAS
from calc.formulas.ledger_formulas import LEDGER_FORMULAS
from calc.formulas.serving_formulas import SERVING_FORMULAS
from calc.formulas.step_formulas import OPERATOR_FORMULAS
from calc.frontier import operating_points
from calc.operators import ForwardPass
from calc.plan.search import with_replicas
from calc.profile import Calibration
from calc.replica_model import replica_model
from calc.scenario import Scenario
from calc.traffic import Source, generated, run
from calc.worked.answer import worked_metrics, worked_step
from calc.worked.forward_pass import WorkedPass
from calc.worked.plan import serving_of
from calc.worked.row import worked_row
from calc.worked.run import worked_operating, worked_run
from calc.worked.serving import worked_serving
from presets.resolve import resolve

SCENARIOS = {
    "default": Scenario(),
    "tensor parallel": Scenario(model="meta-llama/Llama-2-70b-hf", gpu="h100-sxm5-80gb", tp=4),
    "experts": Scenario(model="Qwen/Qwen3-30B-A3B", gpu="b200-sxm-180gb", quantization="fp8"),
    "latent": Scenario(model="deepseek-ai/DeepSeek-V3", gpu="h200-sxm-141gb", tp=8),
    "windows": Scenario(
        model="google/gemma-3-27b-it", gpu="a100-sxm4-80gb", input_tokens=3000.0, prefix_share=0.5
    ),
    "slots": Scenario(model="Qwen/Qwen3.5-35B-A3B", gpu="h100-sxm5-80gb", tp=2, engine="sglang"),
    "two nodes": Scenario(model="meta-llama/Llama-2-70b-hf", gpu="a100-sxm4-80gb", tp=16, nodes=2),
    "roofline": Scenario(fidelity="roofline", tp=2),
    "sglang": Scenario(engine="sglang", model="Qwen/Qwen3-8B", rate_per_s=30.0),
    "tensorrt-llm": Scenario(engine="tensorrt-llm"),
    "llama.cpp": Scenario(
        engine="llama.cpp", gpu="rtx-4090", model="Qwen/Qwen3-8B", traffic="users", users=1, tpot_s=None
    ),
    "users": Scenario(traffic="users", users=70, quantization="int4-g128"),
    "cache given": Scenario(kv_bytes_per_gpu=30e9),
    "drafts": Scenario(draft_tokens=4),
    "adapters": Scenario(adapters=16),
    "token budget": Scenario(max_batched_tokens=256),
    "prompts alone": Scenario(chunked_prefill=False),
    "text that returns": Scenario(
        model="meta-llama/Meta-Llama-3.1-8B",
        input_tokens=2000.0,
        prefix_share=0.8,
        reuse_after_s=300.0,
        kv_offload="host",
    ),
}
STEPS = ("memory", "sequences", "decode", "prefill", "fleet")
PASSES = (
    ForwardPass.decode(1.0, 100.0),
    ForwardPass.decode(64.0, 3000.0),
    ForwardPass.prefill(37.0),
    ForwardPass.mixed(16.0, 900.0, prompt_tokens=512.0, prefix=256.0),
)


@pytest.fixture(scope="module")
def answers():
    return {name: answer(resolve(scenario)) for name, scenario in SCENARIOS.items()}


def value(line):
    return float(FORMULAS[line.formula].value(line.inputs))


def wrong(lines, rel=1e-9):
    return [
        (line.formula, line.about, value(line), line.result)
        for line in lines
        if not isclose(value(line), line.result, rel_tol=rel, abs_tol=1e-15)
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_operator_of_every_pass_comes_out_again(answers, name):
    result = answers[name]
    model = replica_model(result.inputs, result.layout)
    for step in PASSES:
        worked = WorkedPass(model=model, step=step)
        rows = worked.rows()
        assert not wrong(line for row in rows for line in worked.operator(row))
        assert not wrong(worked.whole())
        last = [worked.operator(row)[-1].result for row in rows]
        fixed = float(np.ravel(worked.estimate.operators.fixed)[0])
        assert sum(last) + fixed == pytest.approx(float(np.ravel(worked.estimate.operators.total)[0]))


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_step_of_an_answer_comes_out_again(answers, name):
    result = answers[name]
    assert result.verdict.fits
    for step in STEPS:
        assert not wrong(worked_step(result, step), rel=2e-3 if step == "fleet" else 1e-9)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_worked_numbers_are_those_on_the_page(answers, name):
    """Times under load are read between the concurrencies that were asked: within 0.2%."""
    result = answers[name]
    at = {step: {line.formula: line.result for line in worked_step(result, step)} for step in STEPS}
    assert at["decode"]["pass_s"] == pytest.approx(result.decode.time.step_s.best, rel=1e-9)
    assert at["prefill"]["pass_s"] == pytest.approx(result.prefill.prefill_s.best, rel=1e-9)
    assert at["fleet"]["tpot_under_load_s"] == pytest.approx(result.tpot_s.best, rel=2e-3)
    assert at["fleet"]["ttft_under_load_s"] == pytest.approx(result.ttft_s.best, rel=2e-3)
    if result.inputs.scenario.fidelity == "expected":
        assert at["decode"]["range_low_s"] == pytest.approx(result.decode.time.step_s.low)
        assert at["decode"]["range_high_s"] == pytest.approx(result.decode.time.step_s.high)
    if "pool_sequences" in at["sequences"]:
        running = at["sequences"].get("running_sequences", at["sequences"]["pool_sequences"])
        assert int(running) * result.layout.dp == result.sequences.fit
    if "kv_pool_bytes" in at["memory"]:
        assert at["memory"]["kv_pool_bytes"] == pytest.approx(result.memory.kv_bytes_per_gpu)


def test_pools_are_worked_out_with_the_wait_of_prompts_for_each_other():
    result = answer(resolve(Scenario(disaggregated=True)))
    assert not wrong(worked_step(result, "fleet"), rel=2e-3)
    found = worked_metrics(result)
    assert set(found) == {"gpus", "utilisation", "cost", "ttft", "tpot"}
    assert found["ttft"].formula == "pool_ttft_s"
    assert found["ttft"].result == pytest.approx(result.ttft_s.best, rel=2e-3)
    assert found["tpot"].result == pytest.approx(result.tpot_s.best, rel=2e-3)
    assert found["gpus"].result == result.gpus


@pytest.mark.parametrize("name", [*SCENARIOS, "textbook"])
def test_headline_numbers_come_out_again(answers, name):
    result = answers.get(name) or answer(resolve(Scenario(fidelity="textbook")))
    found = worked_metrics(result)
    assert {"gpus", "ttft", "tpot", "utilisation"} <= set(found)
    assert found["gpus"].result == result.gpus  # of all replicas, not replicas
    assert not wrong(found.values())
    assert found["tpot"].result == pytest.approx(result.tpot_s.best, rel=2e-3)
    assert found["ttft"].result == pytest.approx(result.ttft_s.best, rel=2e-3)
    if "cost" in found:
        assert found["cost"].result == pytest.approx(result.cost.usd_per_million_output)


@pytest.mark.parametrize("name", [*SCENARIOS, "textbook", "textbook users", "pools", "slow prompts"])
def test_a_row_of_answers_has_every_number_of_its_columns(answers, name):
    """What a table of levers, plans or deployments shows of an answer, each from a formula."""
    others = {
        "textbook": Scenario(fidelity="textbook"),
        "textbook users": Scenario(fidelity="textbook", traffic="users", users=200),
        "pools": Scenario(disaggregated=True, tp=2),
        "slow prompts": Scenario(ttft_s=0.3, rate_per_s=30.0, tpot_s=None),
    }
    result = answers.get(name) or answer(resolve(others[name]))
    lines = worked_row(result)
    assert not wrong(lines, rel=2e-3)
    results = [line.result for line in lines]
    shown = [result.gpus, result.ttft_s.best, result.tpot_s.best, result.fleet.utilization]
    shown += [result.tokens_per_s_per_gpu]
    shown += [v for v in (result.cost.usd_per_hour, result.cost.usd_per_million_output) if v is not None]
    if not result.fleet.prefill_replicas:
        shown.append(result.fleet.replicas)
    for value_shown in shown:
        assert any(isclose(value_shown, one, rel_tol=2e-3) for one in results), value_shown
    assert all(line.about for line in lines)


def test_a_promise_that_ends_the_batch_is_kept_there_and_missed_a_step_further(answers):
    result = answers["default"]
    assert result.sequences.binding == "tpot"
    (kept,) = [line for line in worked_row(result) if "that keep the target" in line.about]
    assert kept.result <= 0.05
    more = serving_of(result, 1.1 * result.sequences.batch)  # concurrencies are tried in steps of 10%
    assert more.tpot_s.best > 0.05


def test_spare_replicas_are_told_from_those_that_the_work_takes(answers):
    grown = with_replicas(answers["default"], 7)
    said = {line.about for line in worked_row(grown) if line.formula == "gpus_to_buy"}
    assert said == {"replicas: 7 are bought, for a target, for what may fail or to fill nodes"}
    (gpus,) = [line for line in worked_row(grown) if line.formula == "gpus_of_units"]
    assert gpus.result == 7


def test_a_calibrated_profile_comes_out_again(answers):
    result = answers["tensor parallel"]
    scalars = {
        "decode_factor": 1.1,
        "prefill_factor": 0.9,
        "communication_factor": 1.3,
        "step_s": 1e-3,
        "sequence_s": 1e-5,
        "ttft_s": 0.02,
    }
    profile = replace(result.inputs.offer.profile, calibration=Calibration(scalars=scalars))
    inputs = replace(result.inputs, offer=replace(result.inputs.offer, profile=profile))
    model = replica_model(inputs, result.layout)
    for step in PASSES:
        worked = WorkedPass(model=model, step=step)
        assert not wrong(line for row in worked.rows() for line in worked.operator(row))
        assert not wrong(worked.whole())
    point = model.serving(input_tokens=512, output_tokens=256, concurrency=12.5)
    assert not wrong(worked_serving(point, users=12.5, output_tokens=256))


def test_every_formula_of_the_step_model_and_the_ledger_is_used(answers):
    used = {
        line.formula for result in answers.values() for step in STEPS for line in worked_step(result, step)
    }
    for result in answers.values():
        worked = WorkedPass(model=replica_model(result.inputs, result.layout), step=PASSES[-1])
        used |= {line.formula for row in worked.rows() for line in worked.operator(row)}
    used |= {
        "user_tokens_per_s",
        "gpu_tokens_per_s",
        "clock_pass_s",
        "fleet_utilisation",
    }  # their own tests, below
    known = {record.id for record in (*OPERATOR_FORMULAS, *SERVING_FORMULAS, *LEDGER_FORMULAS)}
    assert known <= used


@pytest.mark.parametrize("fidelity", ["expected", "roofline", "textbook"])
def test_points_of_the_frontier_come_out_again(fidelity):
    inputs = resolve(Scenario(fidelity=fidelity))
    points = operating_points(inputs, inputs.offer)
    lines = [
        line for point in points for line in worked_operating(point, output_tokens=256.0, baseline=points[3])
    ]
    assert len(lines) == (7 if fidelity == "textbook" else 8) * len(points) > 0
    assert not wrong(lines)


def test_a_simulated_run_comes_out_again(answers):
    for name in ("default", "windows"):
        result = answers[name]
        requests = generated(
            result.inputs.scenario.workload, Source.SCENARIO, rate_per_s=5.0, count=60, seed=1
        )
        lines = worked_run(result, run(result, requests, replicas=result.fleet.replicas))
        assert {line.formula for line in lines} == {"goodput_per_s", "requests_in_system", "clock_pass_s"}
        assert not wrong(lines)
        clock = lines[-1].result
        assert clock == pytest.approx(
            result.decode.time.step_s.best, rel=0.02
        )  # the table's own bar, and a rounded context


def test_every_worked_formula_can_be_typeset(answers):
    for step in STEPS:
        for line in worked_step(answers["experts"], step):
            text = FORMULAS[line.formula].substituted(line.inputs)
            assert "nan" not in text
            assert text.count("{") == text.count("}")
