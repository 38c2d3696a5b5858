"""A promise that is given up, or a card that holds more, never makes a replica do less: order, not numbers."""

from dataclasses import replace

import pytest

from calc.replica import replica_memory, replica_times
from calc.scenario import Scenario
from calc.sized import answer_on
from presets.resolve import resolve

BEST_BEFORE_FULL = (
    Scenario(
        model="meta-llama/Llama-2-13b-hf",
        gpu="b100-sxm",
        tp=1,
        input_tokens=1024,
        output_tokens=16,
        fidelity="roofline",
    ),
    Scenario(model="bigcode/starcoder2-7b", gpu="l40s", tp=1, input_tokens=64, output_tokens=16),
)
"""Replicas that finish most requests per second with fewer at once than fit."""

BOUND_BY_A_TARGET = (
    Scenario(
        model="Qwen/Qwen2.5-3B-Instruct",
        gpu="jetson-thor-t5000",
        tp=1,
        pp=2,
        input_tokens=3000,
        output_tokens=1000,
        quantization="fp8",
        kv_dtype="fp8",
        tpot_s=0.03,
        ttft_s=2.0,
    ),
    Scenario(model="google/gemma-2-27b-it", gpu="l40", tp=1, pp=2, input_tokens=1, output_tokens=128),
    Scenario(model="01-ai/Yi-34B", gpu="h100-sxm5-80gb", tp=2, input_tokens=1024, output_tokens=128),
)


def most(inputs):
    """Requests per second that one replica can take."""
    fleet = answer_on(inputs, inputs.scenario.layout).fleet
    return fleet.rate_per_s / fleet.busy


@pytest.mark.parametrize("scenario", BEST_BEFORE_FULL, ids=lambda s: s.model)
def test_a_looser_target_never_lowers_what_a_replica_takes(scenario):
    inputs = resolve(scenario)
    taken = [
        most(replace(inputs, scenario=replace(scenario, tpot_s=seconds)))
        for seconds in (0.012, 0.03, 0.05, 0.1, 0.2, 1.0, None)
    ]
    assert taken == sorted(taken)
    assert taken[-1] > taken[0]


@pytest.mark.parametrize("scenario", BOUND_BY_A_TARGET, ids=lambda s: s.model)
def test_a_target_is_met_at_the_same_concurrency_whatever_fits_beside_it(scenario):
    inputs = resolve(scenario)
    card = inputs.offer.accelerator
    taken = []
    for factor in (1.0, 1.05, 1.1, 1.15, 1.2):
        total = round(card.cuda_memory.best * factor)
        bigger = replace(
            card, driver_memory_bytes=None, cuda_memory_bytes=(total, total), unified_shares=None
        )
        taken.append(most(replace(inputs, offer=replace(inputs.offer, accelerator=bigger))))
    assert max(taken) == pytest.approx(min(taken), rel=0.003)


@pytest.mark.parametrize("limit_s", [0.025, 0.03, 0.0333, 0.06])
def test_the_most_sequences_under_a_target_are_the_most(limit_s):
    """Asked just below that concurrency the step model keeps the target, just above it does not."""
    inputs = resolve(
        Scenario(model="bigcode/starcoder2-7b", gpu="l40s", tp=1, input_tokens=512, output_tokens=256)
    )
    layout = inputs.scenario.layout
    _, _, fit = replica_memory(inputs, layout)
    replica = replica_times(inputs, layout, fit=fit)
    found = replica.largest(replica.point.tpot_s, limit_s)
    asked = replica.model.serving(
        input_tokens=512, output_tokens=256, concurrency=[found * 0.98, found * 1.02 + 1.0]
    ).tpot_s.best
    assert asked[0] <= limit_s < asked[1]
