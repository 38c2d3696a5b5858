"""The closed forms beside the serving simulator under Poisson traffic: what a page may show before it has simulated."""

import numpy as np
import pytest
from decoding_queue import decoding_queue

from calc.queueing import (
    MG1,
    AffineStep,
    BulkService,
    LognormalService,
    ObservedService,
    affine_decode_load,
    chunked_prefill_service_s,
    static_batch_service_s,
)
from calc.simulation.requests import RequestTable
from calc.simulation.rules import EngineFamily, EngineRules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable

FIXED_S, PREFILL_S, DECODE_S, KV_S = 7.5e-3, 0.05e-3, 0.02e-3, 0.00015e-3
RATE, BUDGET, MOST_SEQUENCES, WARM_UP = 4.7, 512, 128, 2000
OUTPUT_SCV = 0.65**2


@pytest.fixture(scope="module")
def run():
    """30,000 requests with the lengths of a public chat trace (lognormal, CV 0.87 in and 0.65 out)."""
    rng = np.random.default_rng(1)
    count = 30_000

    def lengths(mean, scv):
        spread = np.sqrt(np.log(1 + scv))
        drawn = rng.lognormal(np.log(mean) - spread**2 / 2, spread, count)
        return np.maximum(1, np.rint(drawn)).astype(np.int64)

    prompts, outputs = lengths(1096, 0.87**2), lengths(265, OUTPUT_SCV)
    table = RequestTable(
        arrival_s=np.cumsum(rng.exponential(1 / RATE, count)), input_tokens=prompts, output_tokens=outputs
    )
    rules = EngineRules(
        family=EngineFamily.SARATHI, num_blocks=1_000_000, token_budget=BUDGET, max_seqs=MOST_SEQUENCES
    )
    step = StepTable.affine(fixed_s=FIXED_S, prefill_s=PREFILL_S, decode_s=DECODE_S, kv_s=KV_S)
    return simulate(table, rules, step)


@pytest.fixture(scope="module")
def read_tokens(run):
    return float(
        np.sum(run.output_tokens * (run.input_tokens + run.output_tokens / 2)) / run.output_tokens.sum()
    )


@pytest.fixture(scope="module")
def load(run, read_tokens):
    return affine_decode_load(
        step=AffineStep(
            fixed_s=FIXED_S,
            prefill_s_per_token=PREFILL_S,
            decode_s_per_sequence=DECODE_S,
            kv_s_per_token=KV_S,
        ),
        rate_per_s=RATE,
        input_tokens=run.input_tokens.mean(),
        output_tokens=run.output_tokens.mean(),
        context_tokens=read_tokens,
    )


def test_the_mean_step(run, load):
    assert load.step_s == pytest.approx(run.busy_s / run.steps, rel=0.02)


def test_decode_times(run, read_tokens):
    """Sharing with the prefills' share of each second taken off: mean and p50 within 4%, p99 within 7%."""
    batch = np.arange(1, MOST_SEQUENCES + 1)
    prefill_share = RATE * run.input_tokens.mean() * PREFILL_S
    queue = decoding_queue(
        arrivals_per_s=RATE,
        output_tokens=run.output_tokens.mean(),
        step_s=(FIXED_S + batch * (DECODE_S + KV_S * read_tokens)) / (1 - prefill_share),
        slots=MOST_SEQUENCES,
    )
    decoding = (run.last_s - run.first_s)[WARM_UP:]
    assert queue.mean_time_s == pytest.approx(decoding.mean(), rel=0.04)
    found = queue.time_quantiles_s((50, 90, 99), sizes=LognormalService(mean_s=1.0, variation=OUTPUT_SCV))
    for percentile, expected, tolerance in zip((50, 90, 99), found, (0.04, 0.06, 0.07), strict=True):
        assert expected == pytest.approx(np.percentile(decoding, percentile), rel=tolerance)


def test_ttft(run, load, read_tokens):
    """M/G/1 over chunked prefills: mean within 8%, p90 and p99 within 10%; it leaves out the wait for the running step."""
    service = chunked_prefill_service_s(
        step=AffineStep(
            fixed_s=FIXED_S,
            prefill_s_per_token=PREFILL_S,
            decode_s_per_sequence=DECODE_S,
            kv_s_per_token=KV_S,
        ),
        prompt_tokens=run.input_tokens,
        token_budget=BUDGET,
        batch=load.batch,
        context_tokens=read_tokens,
    )
    queue = MG1(arrivals_per_s=RATE, service=ObservedService.of(service))
    ttft = run.ttft_s[WARM_UP:]
    assert queue.mean_time_s == pytest.approx(ttft.mean(), rel=0.08)
    for percentile in (90, 99):
        assert queue.time_quantile_s(percentile) == pytest.approx(np.percentile(ttft, percentile), rel=0.10)


@pytest.mark.parametrize(("timeout_s", "start_at"), [(0.0, 1), (None, 4)])
def test_static_batches(timeout_s, start_at):
    """The simulator's static batches of equal requests are the bulk queue: the mean wait within 5%."""
    rng = np.random.default_rng(7)
    count, rate, output = 60_000, 5.0, 50
    step = StepTable.affine(fixed_s=10e-3, prefill_s=0.1e-3, decode_s=0.5e-3, kv_s=0.0)
    service = static_batch_service_s(
        prefill_s=100 * 0.1e-3,
        step_s=10e-3 + 0.5e-3 * np.arange(1, 5),
        output_tokens=output,
    )
    service = tuple(s + 10e-3 for s in service)  # the prefill's own fixed part
    result = simulate(
        RequestTable(
            arrival_s=np.cumsum(rng.exponential(1 / rate, count)),
            input_tokens=np.full(count, 100),
            output_tokens=np.full(count, output),
        ),
        EngineRules(family=EngineFamily.STATIC, num_blocks=100_000, batch_size=4, batch_timeout_s=timeout_s),
        step,
    )
    queue = BulkService(arrivals_per_s=rate, service_s=service, start_at=start_at)
    assert (result.scheduled_s - result.arrival_s).mean() == pytest.approx(queue.mean_wait_s, rel=0.05)
