"""A serving point at fixed concurrency beside the simulator that plays it: users whose answers differ in length."""

from dataclasses import replace

import numpy as np
import pytest

from calc.proof import Pools, clock_of, rules_of, server_s_of
from calc.replica_model import replica_model
from calc.scenario import Fidelity, Scenario, Traffic
from calc.simulation import workload
from calc.simulation.cluster import Cluster
from calc.simulation.rules import engine_rules
from calc.simulation.run import Simulation, simulate
from calc.simulation.step_table import StepTable
from calc.sized import answer_on
from calc.workload import Lengths, LengthShape
from presets.resolve import resolve

LLAMA = "meta-llama/Meta-Llama-3.1-8B"
ASKED = Scenario(traffic=Traffic.USERS, tpot_s=None, headroom=0.0)
POINTS = {
    "a pipeline": {
        "model": LLAMA,
        "gpu": "a100-sxm4-80gb",
        "pp": 2,
        "users": 60,
        "input_tokens": 6694,
        "output_tokens": 234,
    },
    "experts": {
        "model": "openai/gpt-oss-20b",
        "gpu": "mi300x",
        "tp": 4,
        "users": 57,
        "input_tokens": 2119,
        "output_tokens": 776,
    },
    "PCIe": {
        "model": "google/gemma-3-27b-it",
        "gpu": "l40s",
        "tp": 8,
        "users": 51,
        "input_tokens": 333,
        "output_tokens": 248,
    },
    "prompts alone": {
        "model": LLAMA,
        "gpu": "h100-sxm5-80gb",
        "engine": "sglang",
        "users": 40,
        "input_tokens": 1000,
        "output_tokens": 300,
    },
    "the bound": {
        "model": LLAMA,
        "gpu": "h100-sxm5-80gb",
        "engine": "tensorrt-llm",
        "tp": 2,
        "users": 173,
        "input_tokens": 2607,
        "output_tokens": 341,
        "fidelity": Fidelity.ROOFLINE,
    },
}
STEP = StepTable.affine(fixed_s=0.005, prefill_s=1e-5, decode_s=1e-4, kv_s=0.0)


def played(result, *, waves, cv):
    """A run of `waves` requests of each user, and its requests after the first ten of each (all, where there are ten)."""
    given = result.inputs.scenario
    users = given.users
    answers = Lengths(mean_tokens=given.output_tokens, shape=LengthShape.LOGNORMAL, cv=cv)
    table = workload.closed_loop(
        np.random.default_rng(0),
        users=users,
        count=waves * users,
        prompt=Lengths(mean_tokens=given.input_tokens),
        answer=answers,
    )
    run = simulate(table, rules_of(result), clock_of(result), cluster=Pools.of(result).cluster(1))
    return run, np.arange(len(table)) >= (10 * users if waves > 10 else 0)


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_point_and_its_simulation_agree(point):
    """Tokens and whole requests within 6%; the first token of the closed form is a benchmark's, whose users begin at once."""
    scenario = replace(ASKED, **{k: float(v) if "tokens" in k else v for k, v in POINTS[point].items()})
    scenario = replace(scenario, tp=scenario.tp or 1)
    inputs = resolve(scenario)
    result = answer_on(inputs, scenario.layout)
    found = replica_model(inputs, scenario.layout).serving(
        input_tokens=scenario.input_tokens, output_tokens=scenario.output_tokens, concurrency=scenario.users
    )
    run, settled = played(result, waves=40, cv=0.5)
    gaps_s = (run.last_s - run.first_s)[settled].sum() / (run.output_tokens[settled] - 1).sum()
    assert gaps_s == pytest.approx(float(found.tpot_s.best[0]), rel=0.06)
    assert run.e2e_s[settled].mean() == pytest.approx(float(found.e2e_s.best[0]), rel=0.06)
    begun, everyone = played(result, waves=10, cv=0.064)
    at_once = begun.ttft_s[everyone].mean() / float(found.ttft_s.best[0])
    steady = run.ttft_s[settled].mean() / float(found.ttft_s.best[0])
    assert steady < 1.0
    if scenario.fidelity == Fidelity.EXPECTED:  # a bound has no fitted parts
        assert 0.7 < at_once < 1.5


@pytest.mark.parametrize("users", [None, 6])
def test_time_in_the_server_comes_before_every_first_token(users):
    draw = np.random.default_rng(3)
    prompt, answer = Lengths(mean_tokens=100), Lengths(mean_tokens=20)
    if users:
        table = workload.closed_loop(draw, users=users, count=60, prompt=prompt, answer=answer)
    else:
        times = workload.renewal_arrivals(draw, rate_per_s=8.0, count=60, cv=1.0)
        table = workload.open_requests(draw, times, prompt=prompt, answer=answer)
    rules = engine_rules("vllm", num_blocks=10_000)
    plain = simulate(table, rules, STEP)
    served = simulate(table, rules, STEP, cluster=Cluster(server_s=0.25))
    if users is None:
        np.testing.assert_allclose(served.arrival_s, plain.arrival_s)
        np.testing.assert_allclose(served.ttft_s, plain.ttft_s + 0.25)
        np.testing.assert_allclose(served.e2e_s, plain.e2e_s + 0.25)
    else:
        first = plain.arrival_s == 0.0
        np.testing.assert_allclose(served.ttft_s[first], plain.ttft_s[first] + 0.25)
        later = table.predecessor >= 0
        before = table.predecessor[later]
        np.testing.assert_allclose(served.arrival_s[later], served.last_s[before])
        assert (served.ttft_s >= 0.25).all()
    run = Simulation(table, rules, STEP, cluster=Cluster(server_s=0.25))
    while not run.advance():
        pass
    assert run.violators(0.2, np.inf, np.inf) == len(table)
    assert run.violators(served.ttft_s.max() + 1e-9, np.inf, np.inf) == 0


def test_the_server_is_the_profiles_and_no_part_of_a_bound():
    asked = Scenario(model=LLAMA, gpu="h100-sxm5-80gb", engine="sglang", tp=1)
    expected = answer_on(resolve(asked), asked.layout)
    assert server_s_of(expected) == expected.inputs.offer.profile.number("ttft.server_s") > 0.0
    assert Pools.of(expected).cluster(1).server_s == server_s_of(expected)
    for fidelity in (Fidelity.ROOFLINE, Fidelity.TEXTBOOK):
        other = replace(expected.inputs, scenario=replace(asked, fidelity=fidelity))
        assert server_s_of(replace(expected, inputs=other)) == 0.0
