"""A plan is proven by simulating it; what the closed forms promise on the mean need not hold at a percentile."""

from dataclasses import replace

import pytest

from calc.answer import answer
from calc.errors import InputError
from calc.proof import prove, rules_of
from calc.result import Inputs, Offer
from calc.scenario import Scenario
from presets import accelerators, models
from presets.resolve import resolve

TEXTBOOK = Scenario(model="textbook-13b", gpu="a100-textbook", kv_bytes_per_gpu=50e9, fidelity="textbook")


def ask(scenario):
    offer = Offer(accelerator=accelerators.load(scenario.gpu))
    return answer(Inputs(scenario=scenario, spec=models.load(scenario.model), offer=offer))


def test_the_textbook_deployment_holds_its_mean_target_in_simulation():
    proof = prove(ask(TEXTBOOK))
    assert proof.holds
    assert proof.replicas == 3
    assert proof.breaks_at_per_s > 10
    # Little's law on what the simulator itself counted.
    planned = proof.planned
    in_system = planned.e2e_s.sum() / planned.makespan_s
    assert in_system == pytest.approx(planned.requests_per_s * planned.e2e_s.mean())


def test_bursts_at_a_percentile_need_more_than_the_mean_says():
    calm = prove(ask(replace(TEXTBOOK, percentile=99.0, ttft_s=0.5)))
    bursts = prove(ask(replace(TEXTBOOK, percentile=99.0, ttft_s=0.5, arrival_cv=3.0)))
    assert bursts.replicas > calm.replicas
    assert not bursts.holds
    assert bursts.proven.holds(bursts.slo)


def test_the_same_seed_gives_the_same_proof():
    first, second = (prove(ask(TEXTBOOK), seed=7) for _ in range(2))
    assert (first.planned.ttft_s == second.planned.ttft_s).all()
    assert first.breaks_at_per_s == second.breaks_at_per_s


def test_a_job_without_targets_is_held_to_keep_up():
    proof = prove(ask(replace(TEXTBOOK, tpot_s=None, arrival_cv=3.0)))
    assert proof.holds
    assert proof.proven.state != "saturated"
    assert proof.breaks_at_per_s >= proof.rate_per_s
    assert proof.headroom >= 0


def test_users_who_wait_are_simulated_as_a_closed_loop():
    proof = prove(ask(replace(TEXTBOOK, traffic="users", users=60)))
    assert proof.holds
    assert proof.breaks_at_per_s is None
    # Little's law in a closed loop without thinking: all users are in the system.
    planned = proof.planned
    assert planned.e2e_s.sum() / planned.makespan_s == pytest.approx(60, rel=0.05)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rate_per_s": 0.0}, "rate"),
        ({"tpot_s": 0.001}, "plan"),
    ],
)
def test_what_cannot_be_proven_is_said(change, named):
    with pytest.raises(InputError, match=named):
        prove(ask(replace(TEXTBOOK, **change)))


def test_pools_of_their_own_hold_what_one_pool_needs_more_gpus_for():
    """A prompt-heavy service with a tight gap between tokens: prompts no longer stall the streams (DistServe's finding)."""
    shared = Scenario(
        model="meta-llama/Llama-3.3-70B-Instruct",
        gpu="h100-sxm5-80gb",
        tp=4,
        rate_per_s=20.0,
        input_tokens=2000.0,
        output_tokens=300.0,
        ttft_s=1.0,
        tpot_s=0.04,
        percentile=99.0,
    )
    one = answer(resolve(shared))
    two = answer(resolve(replace(shared, disaggregated=True)))
    assert 0 < two.fleet.prefill_replicas < two.fleet.replicas
    assert two.gpus < one.gpus
    proof = prove(two)
    assert proof.holds
    assert proof.proven.spread("tpot_s").p99 <= 0.04


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        # 82 requests of 5 slots, as the ledger says: short requests do not make them more
        (Scenario(model="Qwen/Qwen3.5-35B-A3B", gpu="h100-sxm5-80gb", tp=2, engine="sglang", tpot_s=None), None),
        # 18.6 GiB free, half a GiB a slot of 4,096 tokens
        (Scenario(model="meta-llama/Meta-Llama-3.1-8B", gpu="rtx-4090", quantization="q4_k_m", engine="llama.cpp", tpot_s=None), 37),
    ],
)  # fmt: skip
def test_slots_bound_a_proof_as_they_bound_the_plan(asked, most):
    result = answer(resolve(replace(asked, input_tokens=100.0, output_tokens=50.0)))
    places = rules_of(result).places
    assert places == result.sequences.fit == (most or places)
    slots = result.ledger.kv.state_slots
    assert slots is None or places == slots // 5
