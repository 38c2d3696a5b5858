"""The simulator against other simulators, traces' own counts, closed forms and discrete-event libraries."""

import csv
import gzip
import json
from itertools import pairwise

import numpy as np
import pytest

from calc.simulation.cluster import Cluster, Router
from calc.simulation.requests import RequestTable
from calc.simulation.rules import EngineFamily, engine_rules
from calc.simulation.run import simulate
from calc.simulation.state import LoadState
from calc.simulation.step_table import StepTable
from calc.simulation.workload import renewal_arrivals
from presets.traces import open_trace

VIDUR_STEP = StepTable.affine(fixed_s=7.5e-3, prefill_s=5e-5, decode_s=2e-5, kv_s=1.5e-7)
VIDUR_STEPS = 26_971  # of its run with ample blocks


@pytest.fixture(scope="module")
def conversations(reference):
    return open_trace(reference / "traces/vidur/azconv2000.csv.gz").requests


def vidur(reference, run):
    return json.loads((reference / "traces/vidur/summary.json").read_text())[run]


def vidur_requests(reference, run):
    with gzip.open(reference / f"traces/vidur/{run}_requests.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in ("ttft_s", "e2e_s", "restarts")}


def off_by(result, want):
    """Relative errors of mean, p50, p90 and p99 of TTFT, TPOT and end to end."""
    errors = {}
    for latency, theirs, unit in (("ttft_s", "ttft_s", 1), ("tpot_s", "tpot_ms", 1e3), ("e2e_s", "e2e_s", 1)):
        spread = result.spread(latency)
        for name in ("mean", "p50", "p90", "p99"):
            errors[latency, name] = abs(getattr(spread, name) * unit / want[theirs][name] - 1)
    return errors


@pytest.mark.reference
@pytest.mark.parametrize("family", ["sarathi", "vllm"])
def test_vidur_with_ample_blocks(reference, conversations, family):
    rules = engine_rules(family, num_blocks=60_000, token_budget=512, max_seqs=128)
    result = simulate(conversations, rules, VIDUR_STEP)
    assert max(off_by(result, vidur(reference, "aff_sarathi")).values()) < 0.005
    assert abs(result.steps / VIDUR_STEPS - 1) < 0.001
    theirs = vidur_requests(reference, "aff_sarathi")
    np.testing.assert_allclose(result.e2e_s, theirs["e2e_s"], rtol=2e-3)


@pytest.mark.reference
def test_vidur_under_pressure_request_by_request(reference, conversations):
    """1,500 blocks: the same requests are restarted as often; whole prompts reserved, 1% kept, a spare block a decode."""
    result = simulate(conversations, engine_rules("sarathi", num_blocks=1500), VIDUR_STEP)
    assert max(off_by(result, vidur(reference, "aff_sarathi_b1500")).values()) < 0.005
    theirs = vidur_requests(reference, "aff_sarathi_b1500")
    np.testing.assert_array_equal(result.preempted, theirs["restarts"])
    np.testing.assert_allclose(result.ttft_s, theirs["ttft_s"], rtol=1e-3, atol=1e-3)


@pytest.mark.reference
def test_the_admission_rule_and_the_watermark_decide_under_pressure(conversations):
    """What the other admission rules make of the same trace: 162 preemptions become hundreds and thousands."""

    def preemptions(**rules):
        rules = engine_rules("vllm", num_blocks=1500, token_budget=512, max_seqs=128, **rules)
        return simulate(conversations, rules, VIDUR_STEP).preemptions

    kept, whole, first = preemptions(watermark=0.01), preemptions(), preemptions(reserve_full_prompt=False)
    assert 130 < kept < 190
    assert 300 < whole < 500
    assert 5000 < first < 7000


@pytest.mark.reference
@pytest.mark.parametrize(("trace", "share"), [("conversation", 0.366), ("synthetic", 0.640)])
def test_mooncake_prefixes_with_a_cache_without_end(reference, trace, share):
    requests = open_trace(reference / f"traces/mooncake_{trace}.jsonl.gz").requests
    blocks = len(requests.prefix_ids)
    hits = blocks - len(np.unique(requests.prefix_ids))  # a cache without end has all that came before
    assert hits / blocks == pytest.approx(share, abs=5e-4)
    rules = engine_rules("vllm", num_blocks=300_000, block_size=512, token_budget=8192, max_seqs=1024)
    result = simulate(requests, rules, VIDUR_STEP)
    # full blocks only, and never the last token: a little less than the trace's own count, which has partial blocks
    assert result.looked_up_blocks == blocks
    assert share - 0.003 < result.prefix_hit_rate <= hits / blocks


@pytest.mark.reference
@pytest.mark.parametrize("family", ["vllm", "sglang"])
@pytest.mark.parametrize(("trace", "share"), [("conversation", 0.366), ("synthetic", 0.640)])
def test_mooncake_hits_fall_with_the_cache(reference, family, trace, share):
    """From the trace's own share without an end, by hashed blocks and by a radix tree of pages."""
    requests = open_trace(reference / f"traces/mooncake_{trace}.jsonl.gz").requests
    budget = {"token_budget": 8192, "max_seqs": 1024} if family == "vllm" else {}
    rates = []
    for blocks in (300_000, 20_000, 5_000, 1_000, 400):
        rules = engine_rules(family, num_blocks=blocks, block_size=512, **budget)
        rates.append(simulate(requests, rules, VIDUR_STEP).prefix_hit_rate)
    assert share - 0.003 < rates[0] <= share + 0.0005
    assert all(more > less for more, less in pairwise(rates))
    assert rates[0] > 2 * rates[-1]


def fixed_work(arrival_s, tokens=10):
    ones = np.ones(len(arrival_s), np.int64)
    return RequestTable(arrival_s=arrival_s, input_tokens=ones * tokens, output_tokens=ones)


def test_one_sequence_of_constant_work_is_md1():
    """M/D/1 at rho 0.8, D 1: mean wait 2.0, p90 5.01151, p95 6.62032, p99 10.35589."""
    step = StepTable.affine(fixed_s=1.0, prefill_s=0.0, decode_s=0.0, kv_s=0.0)
    waits = []
    for seed in range(4):
        arrival_s = renewal_arrivals(np.random.default_rng(seed), rate_per_s=0.8, count=250_000)
        rules = engine_rules("vllm", num_blocks=10, max_seqs=1, token_budget=10)
        waits.append(simulate(fixed_work(arrival_s), rules, step).ttft_s - 1.0)
    waits = np.concatenate(waits)
    assert waits.mean() == pytest.approx(2.0, rel=0.03)
    want = np.array([5.01151, 6.62032, 10.35589])
    np.testing.assert_allclose(np.percentile(waits, [90, 95, 99]), want, rtol=0.05)


def test_eight_replicas_behind_one_queue_wait_less_than_behind_eight():
    """Least outstanding against random: M/D/c-like pooling; at random each replica is the M/D/1 above."""
    step = StepTable.affine(fixed_s=1.0, prefill_s=0.0, decode_s=0.0, kv_s=0.0)
    rules = engine_rules("vllm", num_blocks=10, max_seqs=1, token_budget=10)
    arrival_s = renewal_arrivals(np.random.default_rng(1), rate_per_s=6.4, count=400_000)
    means = {}
    for router in Router:
        cluster = Cluster(replicas=8, router=router, seed=3)
        means[router] = simulate(fixed_work(arrival_s), rules, step, cluster=cluster).ttft_s.mean() - 1.0
    assert means[Router.RANDOM] == pytest.approx(2.0, rel=0.06)
    assert means[Router.LEAST_OUTSTANDING] < means[Router.POWER_OF_TWO] < means[Router.RANDOM]
    assert means[Router.ROUND_ROBIN] < means[Router.RANDOM]


def test_cost_per_token_and_no_batch_limit_is_processor_sharing():
    """M/M/1-PS: with rho 0.7 a request of work x takes x / 0.3 on average, whatever its size (insensitivity)."""
    draw = np.random.default_rng(7)
    count, token_s, mean_tokens = 200_000, 1e-3, 50.0
    output = 1 + draw.geometric(1 / mean_tokens, count)
    arrival_s = renewal_arrivals(draw, rate_per_s=0.7 / (mean_tokens * token_s), count=count)
    table = RequestTable(arrival_s=arrival_s, input_tokens=np.ones(count, np.int64), output_tokens=output)
    step = StepTable.affine(fixed_s=0.0, prefill_s=1e-9, decode_s=token_s, kv_s=0.0)
    result = simulate(table, engine_rules("vllm", num_blocks=10**6, max_seqs=4096, token_budget=8192), step)
    decode_s = result.last_s - result.first_s
    work_s = (output - 1) * token_s
    assert decode_s.mean() == pytest.approx(work_s.mean() / 0.3, rel=0.05)
    for low, high in ((5, 20), (40, 60), (100, 200)):
        some = (output > low) & (output <= high)
        assert decode_s[some].mean() == pytest.approx(work_s[some].mean() / 0.3, rel=0.08)


def test_simpy_as_an_oracle_for_one_server():
    """An independent event loop: FIFO server whose service is prefill plus decode steps, one sequence at a time."""
    import simpy

    draw = np.random.default_rng(11)
    count = 400
    arrival_s = np.cumsum(draw.exponential(0.5, count))
    input_tokens, output_tokens = draw.integers(1, 300, count), draw.integers(1, 40, count)
    ends = np.zeros(count)

    def user(environment, server, i):
        yield environment.timeout(arrival_s[i])
        with server.request() as turn:
            yield turn
            yield environment.timeout(5e-3 + 1e-4 * input_tokens[i])
            for made in range(output_tokens[i] - 1):
                yield environment.timeout(5e-3 + 2e-3 + 1e-5 * (input_tokens[i] + made + 1))
            ends[i] = environment.now

    environment = simpy.Environment()
    server = simpy.Resource(environment, capacity=1)
    for i in range(count):
        environment.process(user(environment, server, i))
    environment.run()
    step = StepTable.affine(fixed_s=5e-3, prefill_s=1e-4, decode_s=2e-3, kv_s=1e-5)
    table = RequestTable(arrival_s=arrival_s, input_tokens=input_tokens, output_tokens=output_tokens)
    for family in (EngineFamily.VLLM, EngineFamily.SARATHI, EngineFamily.SGLANG):
        rules = engine_rules(family, num_blocks=4000, block_size=1, max_seqs=1, token_budget=500)
        np.testing.assert_allclose(simulate(table, rules, step).last_s, ends, rtol=1e-9)
    static = engine_rules("static", num_blocks=4000, batch_size=1)
    np.testing.assert_allclose(simulate(table, static, step).last_s, ends, rtol=1e-9)


@pytest.mark.parametrize(("outputs", "share"), [((10, 20, 50, 200), 0.35), ((50, 100, 200, 500), 0.425)])
def test_static_batching_wastes_slots(outputs, share):
    """The textbook's two batches: useful tokens over slot steps."""
    table = RequestTable(arrival_s=np.zeros(4), input_tokens=np.full(4, 8), output_tokens=np.array(outputs))
    step = StepTable.affine(fixed_s=1e-2, prefill_s=0, decode_s=0, kv_s=0)
    result = simulate(table, engine_rules("static", num_blocks=1000, batch_size=4), step)
    assert result.useful_slots / result.slot_steps == share
    assert result.slot_steps == 4 * max(outputs)
    assert len(set(result.last_s)) == 1


def test_saturation_is_said():
    step = StepTable.affine(fixed_s=1.0, prefill_s=0.0, decode_s=0.0, kv_s=0.0)
    rules = engine_rules("vllm", num_blocks=10, max_seqs=1, token_budget=10)
    states = {}
    for load in (0.3, 0.6, 0.93, 1.2, 2.0):
        arrival_s = renewal_arrivals(np.random.default_rng(2), rate_per_s=load, count=4000)
        states[load] = simulate(fixed_work(arrival_s), rules, step).state
    assert states == {
        0.3: LoadState.STABLE,
        0.6: LoadState.STABLE,
        0.93: LoadState.NEAR_SATURATION,
        1.2: LoadState.SATURATED,
        2.0: LoadState.SATURATED,
    }


def test_chunks_bound_the_stall_of_running_streams():
    """One prompt of 20,000 tokens amid running streams: the longest gap falls with the budget.

    Throughput pays for it what the step time says: chunks add no tokens, so that each costs a pass beside the streams at most.
    """
    arrival_s = np.concatenate([np.zeros(8), [0.5]])
    input_tokens = np.array([50] * 8 + [20_000])
    table = RequestTable(arrival_s=arrival_s, input_tokens=input_tokens, output_tokens=np.full(9, 400))
    stalls, lasting = [], []
    budgets = (32_768, 8192, 2048, 512)
    for budget in budgets:
        rules = engine_rules("vllm", num_blocks=4000, token_budget=budget, max_seqs=32)
        result = simulate(table, rules, VIDUR_STEP)
        stalls.append(result.longest_gap_s)
        lasting.append(result.makespan_s)
        chunks = -(-20_000 // (budget - 8))
        assert result.prefill_tokens == input_tokens.sum()
        assert result.makespan_s <= lasting[0] + chunks * VIDUR_STEP.seconds(0, 8, 8 * 450)
    assert all(more > less for more, less in pairwise(stalls))
    assert lasting[-1] < 1.1 * lasting[0]
    assert stalls[0] > 1.0
    assert stalls[-1] < 0.04
