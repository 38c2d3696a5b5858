"""vLLM before V1: against Vidur's run of it, the paged allocator, and cases counted by hand (prompts first, swap, samples)."""

import csv
import gzip
import json

import numpy as np
import pytest

from calc.errors import InputError
from calc.paging import PagedKvCache
from calc.simulation.link import KvTier, Link
from calc.simulation.requests import RequestTable
from calc.simulation.rules import engine_rules
from calc.simulation.run import Simulation, simulate
from calc.simulation.step_table import StepTable
from presets.traces import open_trace

UNIT = StepTable.affine(fixed_s=1.0, prefill_s=0.0, decode_s=0.0, kv_s=0.0)
VIDUR_STEP = StepTable.affine(fixed_s=7.5e-3, prefill_s=5e-5, decode_s=2e-5, kv_s=1.5e-7)


def table(arrivals, prompts, answers, samples=None):
    return RequestTable(
        arrival_s=np.array(arrivals, float),
        input_tokens=np.array(prompts),
        output_tokens=np.array(answers),
        samples=None if samples is None else np.array(samples),
    )


def host(blocks=1000, token_s=0.0):
    bandwidth = 1 / token_s if token_s else 1e300
    return KvTier(num_blocks=blocks, link=Link(kv_bytes_per_token=1.0, bandwidth_bytes_per_s=bandwidth))


def run(requests, **settings):
    return simulate(requests, engine_rules("vllm-v0", **settings), UNIT, compiled=False)


@pytest.mark.reference
def test_vidurs_vllm_under_pressure(reference):
    """1,500 blocks, its own defaults: means and percentiles within half a percent, the same restarts, request by request."""
    requests = open_trace(reference / "traces/vidur/azconv2000.csv.gz").requests
    result = simulate(requests, engine_rules("vllm-v0", num_blocks=1500), VIDUR_STEP)
    theirs = json.loads((reference / "traces/vidur/summary.json").read_text())["aff_vllm_b1500"]
    for ours, name, unit in (("ttft_s", "ttft_s", 1.0), ("tpot_s", "tpot_ms", 1e-3), ("e2e_s", "e2e_s", 1.0)):
        spread = result.spread(ours).as_json()
        for kind in ("mean", "p50", "p90", "p99"):
            assert spread[kind] == pytest.approx(theirs[name][kind] * unit, rel=0.005), (name, kind)
    assert result.preemptions == theirs["restarts"]
    with gzip.open(reference / "traces/vidur/aff_vllm_b1500_requests.csv.gz", "rt") as file:
        ends = np.array([float(line["e2e_s"]) for line in csv.DictReader(file)])
    close = np.abs(result.e2e_s - ends) <= 0.005 * ends
    assert close.mean() > 0.99


def test_prompts_go_first_and_alone():
    result = run(table([0, 1.5], [4, 4], [6, 2]), num_blocks=100)
    # prompt, token, the other's prompt, then both: the stream stands still for a pass
    assert result.first_s.tolist() == [1.0, 3.0]
    assert result.longest_gap_s == 2.0
    assert result.mixed_steps == 0


def test_a_batch_of_prompts_is_padded_to_its_longest():
    # two prompts of 10 and 60 are 120 padded tokens: too many for one pass of 100
    both = run(table([0, 0], [10, 60], [1, 1]), num_blocks=100, token_budget=130)
    apart = run(table([0, 0], [10, 60], [1, 1]), num_blocks=100, token_budget=119, max_seqs=100)
    assert both.first_s.tolist() == [1.0, 1.0]
    assert apart.first_s.tolist() == [1.0, 2.0]


def test_preempted_requests_are_computed_anew_or_swapped():
    """Blocks of two, eight of them, two requests that need five each: the later one goes when the pool is full."""
    requests = table([0, 0], [3, 3], [8, 8])
    anew = run(requests, num_blocks=8, block_size=2, watermark=0.0)
    swapped = run(requests, num_blocks=8, block_size=2, watermark=0.0, swap=host())
    # the sixth pass finds no free block. Anew: it is back in the seventh, which stops the other for a pass, and goes again
    assert (anew.preempted.tolist(), anew.last_s.tolist()) == ([0, 2], [9.0, 11.0])
    # swapped: its four blocks and one more are not free before the first one has ended
    assert (swapped.preempted.tolist(), swapped.last_s.tolist()) == ([0, 1], [8.0, 11.0])
    assert (anew.swap_outs, swapped.swap_outs) == (0, 1)
    assert anew.prefill_tokens > swapped.prefill_tokens == 6


def test_a_swap_takes_the_time_of_its_copies_out_and_in():
    requests = table([0, 0], [3, 3], [8, 8])
    free = run(requests, num_blocks=8, block_size=2, watermark=0.0, swap=host())
    slow = run(requests, num_blocks=8, block_size=2, watermark=0.0, swap=host(token_s=0.01))
    # the second one leaves with its blocks, and they come back: each twice two slots of a hundredth
    out = slow.last_s[0] - free.last_s[0]
    blocks = round(out / 0.02)
    assert out == pytest.approx(blocks * 0.02)
    assert blocks in (3, 4)
    assert slow.last_s[1] - free.last_s[1] == pytest.approx(2 * out)


def test_nobody_new_starts_while_somebody_is_swapped():
    requests = table([0, 0, 5.5], [3, 3, 1], [8, 8, 1])
    swapped = run(requests, num_blocks=8, block_size=2, watermark=0.0, swap=host())
    assert swapped.swap_outs == 1
    assert swapped.scheduled_s[2] >= swapped.last_s[0]


def test_a_full_host_means_computing_anew():
    requests = table([0, 0], [3, 3], [8, 8])
    result = run(requests, num_blocks=8, block_size=2, watermark=0.0, swap=host(blocks=1))
    assert (result.swap_outs, result.preemptions) == (0, 2)


@pytest.mark.parametrize(("prompt", "answer", "samples"), [(1000, 8, 4), (37, 30, 4), (32, 40, 3), (5, 3, 2)])
def test_samples_hold_the_blocks_that_the_allocator_gives_them(prompt, answer, samples):
    """Fork and copy-on-write in the paged allocator, token by token, against the group in the simulator."""
    requests = table([0], [prompt], [answer], [samples])
    rules = engine_rules("vllm-v0", num_blocks=600, swap=host())
    one = Simulation(requests, rules, UNIT, compiled=False, skip=False)
    cache = PagedKvCache(num_blocks=600, block_size=16)
    cache.add(0, list(range(prompt)))
    for child in range(1, samples):
        cache.fork(0, child)
    one.advance(passes=1)
    for token in range(1, answer - 1):
        for sample in range(samples):
            cache.append(sample, 10_000 * sample + token)
        one.advance(passes=1)
        assert 600 - one._replicas.state["free"][0] == cache.num_used_blocks, token
    while not one.advance():
        pass
    assert one._replicas.state["free"][0] == 600


def test_the_textbooks_four_samples_of_a_thousand_tokens():
    """63 blocks of 16 for a prompt of 1,000; four copies would hold 252; four samples that share hold 62 and one each: 66."""
    alone = run(table([0], [1000], [2]), num_blocks=300)
    shared = run(table([0], [1000], [2], [4]), num_blocks=300, swap=host())
    four = run(table([0] * 4, [1000] * 4, [2] * 4), num_blocks=300)
    assert (alone.peak_blocks, four.peak_blocks, shared.peak_blocks) == (63, 252, 66)
    assert shared.prefill_tokens == 1000
    assert shared.output_tokens_per_s == pytest.approx(4 * alone.output_tokens_per_s)


def test_groups_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="samples"):
        simulate(table([0], [5], [2], [3]), engine_rules("vllm", num_blocks=50), UNIT, compiled=False)
    with pytest.raises(InputError, match="swap"):
        run(table([0], [5], [2], [3]), num_blocks=50)
    with pytest.raises(InputError, match="max_seqs"):
        run(table([0], [5], [2], [30]), num_blocks=500, max_seqs=20, swap=host())
    with pytest.raises(InputError, match="swap"):
        engine_rules("vllm", num_blocks=50, swap=host())
    slow_to_start = Link(kv_bytes_per_token=1.0, bandwidth_bytes_per_s=1e9, latency_s=1e-3)
    with pytest.raises(InputError, match="swap latency"):
        engine_rules("vllm-v0", num_blocks=50, swap=KvTier(num_blocks=9, link=slow_to_start))
    with pytest.raises(InputError, match="samples"):
        table([0], [5], [2], [0])
    with pytest.raises(InputError, match="token_budget"):
        run(table([0], [5000], [2]), num_blocks=5000)
