"""Answers of a token or a few, as of classifiers and rankers: a replica serves no more than it can compute."""

import numpy as np
import pytest

from calc.layout import Layout
from calc.parameters import count_parameters
from calc.profile import Schedule
from calc.simulation.requests import RequestTable
from calc.simulation.rules import EngineFamily, engine_rules
from calc.simulation.run import simulate
from calc.step import Fidelity, StepModel
from calc.step_clock import step_clock
from presets import accelerators, models, profiles

USERS = np.unique(np.rint(np.geomspace(1, 2048, 40)))


def step_model(model, gpu, *, tp=1, engine="vllm", fidelity=Fidelity.EXPECTED):
    card = accelerators.load(gpu)
    return StepModel.of(
        models.load(model), card, Layout(tp=tp), profiles.load(card, engine), fidelity=fidelity
    )


def rates(model, *, input_tokens, output_tokens):
    """Requests per second at each number of users."""
    point = model.serving(input_tokens=input_tokens, output_tokens=output_tokens, concurrency=USERS)
    return USERS / point.e2e_s.best


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("fidelity", [Fidelity.ROOFLINE, Fidelity.EXPECTED])
@pytest.mark.parametrize(
    ("name", "gpu", "tp", "prompt"),
    [
        ("mistralai/Mistral-Nemo-Instruct-2407", "h100-sxm5-80gb", 1, 512),
        ("Qwen/Qwen3-30B-A3B", "h100-sxm5-80gb", 2, 512),
        ("meta-llama/Meta-Llama-3.1-70B", "a100-sxm4-80gb", 4, 8000),
    ],
)
def test_no_more_prompts_are_served_than_the_peak_multiplies(engine, fidelity, name, gpu, tp, prompt):
    """Every prompt token passes through its active parameters but the head's and the table's: two FLOP each, at the least."""
    model = step_model(name, gpu, tp=tp, engine=engine, fidelity=fidelity)
    counted = count_parameters(model.spec)
    weights = counted.active - counted.embedding - counted.lm_head
    asked = rates(model, input_tokens=prompt, output_tokens=1) * prompt * 2.0 * weights
    assert asked.max() <= tp * model.accelerator.rate("bf16").flop_per_s


@pytest.mark.parametrize(
    ("name", "gpu", "prompt", "output"),
    [
        ("mistralai/Mistral-7B-Instruct-v0.3", "h100-sxm5-80gb", 512, 1),
        ("mistralai/Mistral-7B-Instruct-v0.3", "h100-sxm5-80gb", 512, 4),
        ("Qwen/Qwen3-0.6B", "l4", 2000, 1),
    ],
)
def test_what_is_served_is_what_the_scheduler_gets_through(name, gpu, prompt, output):
    """3,000 requests that are all there at once, played pass by pass on the same step times."""
    model = step_model(name, gpu)
    assert model.profile.engine.schedule is Schedule.MIXED
    clock = step_clock(model, context_tokens=prompt + output / 2, prompt_tokens=prompt)
    played = simulate(
        RequestTable(
            arrival_s=np.zeros(3000),
            input_tokens=np.full(3000, prompt),
            output_tokens=np.full(3000, output),
        ),
        engine_rules(
            EngineFamily.VLLM, num_blocks=1_000_000, token_budget=int(model.profile.engine.chunk_tokens)
        ),
        clock,
    )
    assert rates(model, input_tokens=prompt, output_tokens=output).max() == pytest.approx(
        played.requests_per_s, rel=0.1
    )


@pytest.mark.parametrize("fidelity", [Fidelity.ROOFLINE, Fidelity.EXPECTED])
@pytest.mark.parametrize("output", [1, 16])
def test_more_users_than_are_best_lower_the_throughput_by_little(fidelity, output):
    """Work that is shared costs nobody more. It fell to seven tenths where prompts that share a step were counted as one."""
    model = step_model("Qwen/Qwen2.5-VL-7B-Instruct", "h100-sxm5-80gb", fidelity=fidelity)
    served = rates(model, input_tokens=512, output_tokens=output)
    assert served[np.argmax(served) :].min() >= 0.93 * served.max()
