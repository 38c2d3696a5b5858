"""Closed forms on real traffic: 2,000 requests of the Azure conversation trace as another simulator ran them, and real
servers that were overloaded. The formulas know Poisson arrivals; real ones come in bursts, so latencies are under-estimated
by what these tests allow."""

import gzip
import json

import numpy as np
import pytest
from decoding_queue import decoding_queue

from calc.queueing import (
    MG1,
    AffineStep,
    ObservedService,
    affine_decode_load,
    chunked_prefill_service_s,
)
from calc.saturation import State

pytestmark = pytest.mark.reference

# The step time that the other simulator was given, in seconds.
STEP = AffineStep(
    fixed_s=7.5e-3, prefill_s_per_token=0.05e-3, decode_s_per_sequence=0.02e-3, kv_s_per_token=0.00015e-3
)
TOKEN_BUDGET, MOST_SEQUENCES = 512, 128
SIMULATED_STEP_S = 427 / 26_971


def table(path):
    with gzip.open(path, "rt") as file:
        return np.genfromtxt(file, delimiter=",", names=True)


@pytest.fixture(scope="module")
def traffic(reference):
    rows = table(reference / "traces/vidur/azconv2000.csv.gz")
    prompts, outputs, arrived = (rows[n] for n in ("num_prefill_tokens", "num_decode_tokens", "arrived_at"))
    return {
        "prompts": prompts,
        "outputs": outputs,
        "rate": (arrived.size - 1) / (arrived[-1] - arrived[0]),
        "context": float(np.sum(outputs * (prompts + outputs / 2)) / outputs.sum()),
    }


@pytest.fixture(scope="module")
def load(traffic):
    return affine_decode_load(
        step=STEP,
        rate_per_s=traffic["rate"],
        input_tokens=traffic["prompts"].mean(),
        output_tokens=traffic["outputs"].mean(),
        context_tokens=traffic["context"],
    )


@pytest.fixture(scope="module")
def simulated(reference):
    return table(reference / "traces/vidur/aff_sarathi_requests.csv.gz")


def test_the_fixed_point_finds_step_and_batch(load):
    assert load.step_s == pytest.approx(15.3e-3, rel=0.01)
    assert load.batch == pytest.approx(19, rel=0.02)
    assert load.step_s == pytest.approx(SIMULATED_STEP_S, rel=0.04)
    assert load.state is State.STABLE


def test_decode_times_are_below_the_simulated_by_the_bursts(traffic, simulated):
    """Mean -10%, p50 -13%, p90 -20%, p99 -19%."""
    batch = np.arange(1, MOST_SEQUENCES + 1)
    per_sequence = STEP.decode_s_per_sequence + STEP.kv_s_per_token * traffic["context"]
    prefill_share = traffic["rate"] * traffic["prompts"].mean() * STEP.prefill_s_per_token
    queue = decoding_queue(
        arrivals_per_s=traffic["rate"],
        output_tokens=traffic["outputs"].mean(),
        step_s=(STEP.fixed_s + batch * per_sequence) / (1 - prefill_share),
        slots=MOST_SEQUENCES,
    )
    decoding = simulated["e2e_s"] - simulated["ttft_s"]
    assert 0.86 < queue.mean_time_s / decoding.mean() < 1.0
    sizes = ObservedService.of(traffic["outputs"])
    for percentile, found in zip(
        (50, 90, 99), queue.time_quantiles_s((50, 90, 99), sizes=sizes), strict=True
    ):
        assert 0.77 < found / np.percentile(decoding, percentile) < 1.0


def test_ttft_is_below_the_simulated_by_the_bursts_and_the_running_step(traffic, load, simulated):
    """Mean -13%, p90 -10%, p99 -13%."""
    service = chunked_prefill_service_s(
        step=STEP,
        prompt_tokens=traffic["prompts"],
        token_budget=TOKEN_BUDGET,
        batch=load.batch,
        context_tokens=traffic["context"],
    )
    queue = MG1(arrivals_per_s=traffic["rate"], service=ObservedService.of(service))
    assert 0.83 < queue.mean_time_s / simulated["ttft_s"].mean() < 1.0
    for percentile in (90, 99):
        found = queue.time_quantile_s(percentile)
        assert 0.83 < found / np.percentile(simulated["ttft_s"], percentile) < 1.0


@pytest.mark.parametrize(
    ("run", "coefficients_ms"),
    [
        ("rtx4090_llama-3.1-8b", (19.5, 0.0958, 0.0167, 0.000087)),
        ("rtxpro6000_llama-3.1-8b", (10.1, 0.0476, 0.0135, 0.000109)),
    ],
)
def test_servers_whose_queues_grew_are_named_saturated(reference, run, coefficients_ms):
    """Real vLLM 0.19 runs at 10 requests/s; the last requests waited 20 s and more for their first step."""
    rows = table(reference / f"traces/vllm_measured/{run}_requests.csv.gz")
    meta = json.loads((reference / f"traces/vllm_measured/{run}_meta.json").read_text())
    assert meta["num_requests"] == rows.size
    fixed, prefill, decode, kv = (1e-3 * value for value in coefficients_ms)
    prompts, outputs, arrived = rows["input_tokens"], rows["output_tokens"], rows["arrival_s"]
    load = affine_decode_load(
        step=AffineStep(
            fixed_s=fixed, prefill_s_per_token=prefill, decode_s_per_sequence=decode, kv_s_per_token=kv
        ),
        rate_per_s=(arrived.size - 1) / (arrived[-1] - arrived[0]),
        input_tokens=prompts.mean(),
        output_tokens=outputs.mean(),
        context_tokens=float(np.sum(outputs * (prompts + outputs / 2)) / outputs.sum()),
    )
    assert load.state is State.SATURATED
    assert load.step_s == float("inf")
    assert (rows["scheduled_s"] - rows["queued_s"]).max() > 15
