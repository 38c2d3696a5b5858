"""KV tiers: what comes back from host memory and an SSD, counted by hand; and never slower than computing it again."""

import numpy as np
import pytest

from calc.errors import InputError
from calc.simulation.link import KvTier, Link
from calc.simulation.requests import RequestTable
from calc.simulation.rules import engine_rules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable

TOKEN = StepTable.affine(fixed_s=0.0, prefill_s=1.0, decode_s=1.0, kv_s=0.0)
"""A second a token, so that times are tokens."""
SERVED = StepTable.affine(fixed_s=7.5e-3, prefill_s=5e-5, decode_s=2e-5, kv_s=1.5e-7)


def asked(arrivals, texts, *, prompt=16, answer=1, size=4):
    ids = [100 * text + np.arange(prompt // size) for text in texts]
    return RequestTable(
        arrival_s=np.array(arrivals, float),
        input_tokens=np.full(len(texts), prompt),
        output_tokens=np.full(len(texts), answer),
        prefix_ids=np.concatenate(ids),
        prefix_count=np.full(len(texts), prompt // size),
        prefix_block=size,
    )


def tier(blocks, token_s, latency_s=0.0):
    return KvTier(
        num_blocks=blocks,
        link=Link(kv_bytes_per_token=1.0, bandwidth_bytes_per_s=1 / token_s, latency_s=latency_s),
    )


def run(requests, *tiers, blocks=4, step=TOKEN, **more):
    rules = engine_rules("vllm", block_size=4, num_blocks=blocks, tiers=tiers, **more)
    return simulate(requests, rules, step, compiled=False)


def test_text_that_was_pushed_off_the_card_comes_back_from_host_memory():
    """A card of four blocks holds one text; the second asker of text 1 finds three blocks of it on the host."""
    requests = asked([0, 100, 200], [1, 2, 1])
    without, result = run(requests), run(requests, tier(10, 0.25))
    assert without.ttft_s.tolist() == [16, 16, 16]
    # 12 tokens travel at a quarter of a second each, 4 are computed
    assert result.ttft_s.tolist() == [16, 16, 12 * 0.25 + 4]
    assert result.loaded_tokens.tolist() == [0, 0, 12]
    assert result.loaded_blocks == 3


def test_sglang_brings_text_back_too():
    """Six pages: text 2 takes the two empty ones and the last two of text 1, whose first two are hit and third comes up."""
    requests = asked([0, 100, 200], [1, 2, 1])
    for tiers, third in (((), 8), ((tier(10, 0.25),), 4 * 0.25 + 4), ((tier(10, 1.1),), 8)):
        rules = engine_rules("sglang", block_size=4, num_blocks=6, tiers=tiers)
        result = simulate(requests, rules, TOKEN, compiled=False)
        assert result.ttft_s.tolist() == [16, 16, third]
        assert result.cached_tokens.tolist() == [0, 0, 8]
        assert result.loaded_tokens.tolist() == [0, 0, 4 if third == 5 else 0]


def test_a_slow_tier_is_left_alone():
    requests = asked([0, 100, 200], [1, 2, 1])
    for slow in (tier(10, 1.0), tier(10, 0.1, latency_s=11.0)):
        result = run(requests, slow)
        assert result.ttft_s.tolist() == [16, 16, 16]
        assert result.loaded_blocks == 0
    assert run(requests, tier(10, 0.1, latency_s=10.0)).ttft_s[2] == pytest.approx(10 + 1.2 + 4)


def test_what_the_host_cannot_keep_goes_to_the_ssd_and_counts_its_own_time():
    """Host of two blocks: the tail of text 1 goes down first and is pushed on to the SSD; blocks 0 and 1 stay."""
    requests = asked([0, 100, 200], [1, 2, 1])
    # text 1 leaves the card tail first (3, 2, 1, 0): the host keeps the last two of them, 1 and 0
    result = run(requests, tier(2, 0.25), tier(10, 0.5))
    assert result.ttft_s[2] == 8 * 0.25 + 4 * 0.5 + 4
    # an SSD that is too slow: only what the host has
    result = run(requests, tier(2, 0.25), tier(10, 3.0))
    assert result.ttft_s[2] == 8 * 0.25 + 8


def test_tiers_forget_the_text_that_was_used_longest_ago():
    # a text has four blocks; a host of four keeps only the last text that left the card
    requests = asked([0, 100, 200, 300, 400], [1, 2, 3, 2, 1])
    result = run(requests, tier(4, 0.25))
    assert result.loaded_tokens.tolist() == [0, 0, 0, 12, 0]
    # of eight, text 2 (loaded at 300) and text 3 (pushed off then) stay, and text 1 goes; of twelve, all stay
    assert run(requests, tier(8, 0.25)).loaded_tokens.tolist() == [0, 0, 0, 12, 0]
    assert run(requests, tier(12, 0.25)).loaded_tokens.tolist() == [0, 0, 0, 12, 12]


def test_text_expires_in_a_tier_too():
    requests = asked([0, 100, 200], [1, 2, 1])
    assert run(requests, tier(10, 0.25), prefix_ttl_s=500.0).loaded_blocks == 3
    assert run(requests, tier(10, 0.25), prefix_ttl_s=150.0).loaded_blocks == 0


@pytest.mark.parametrize("family", ["vllm", "sglang"])
@pytest.mark.parametrize("seed", range(16))
def test_a_tier_never_makes_a_request_slower_than_computing_it_again(seed, family):
    """Requests one after the other, random texts, pools, tiers: each first token as early as without, or earlier."""
    draw = np.random.default_rng(seed)
    count, size = 60, int(draw.choice([4, 16]))
    prompts = size * draw.integers(1, 30, count) + draw.integers(0, size, count)
    texts = draw.integers(0, 6, count)
    blocks = prompts // size
    requests = RequestTable(
        arrival_s=np.where(np.arange(count) == 0, 0.0, np.nan),
        input_tokens=prompts,
        output_tokens=draw.integers(1, 20, count),
        predecessor=np.arange(count) - 1,
        think_s=draw.exponential(0.1, count),
        prefix_ids=np.concatenate([1000 * t + np.arange(b) for t, b in zip(texts, blocks, strict=True)]),
        prefix_count=blocks,
        prefix_block=size,
    )
    settings = {
        "num_blocks": int(-(-520 // size) * draw.uniform(1, 2)) + 2,
        "block_size": size,
        "token_budget": int(draw.choice([64, 300, 2048])),
        "max_seqs": 32,
    }
    speeds = draw.choice([1e-6, 3e-5, 6e-5, 2e-4], 2)
    waits = draw.choice([0.0, 5e-3, 2e-2], 2)
    tiers = tuple(tier(int(draw.integers(4, 200)), *how) for how in zip(speeds, waits, strict=True))
    without = simulate(requests, engine_rules(family, **settings), SERVED, compiled=False)
    result = simulate(requests, engine_rules(family, tiers=tiers, **settings), SERVED, compiled=False)
    assert (result.ttft_s <= without.ttft_s + 1e-12).all()
    loaded = result.loaded_tokens > 0
    assert (result.ttft_s < without.ttft_s)[loaded].all()
    np.testing.assert_array_equal(result.cached_tokens, without.cached_tokens)


@pytest.mark.parametrize("family", ["vllm", "sglang"])
@pytest.mark.parametrize("load", [0.2, 0.5, 0.8, 1.2, 2.0])
def test_a_tier_makes_no_crowd_slower(load, family):
    """Many at once, from a fifth of what prompts alone can take to twice that: means and the 99th percentile only fall.

    Single requests can come later: who shares a pass, and which text is still cached, is no longer the same.
    """
    for seed in range(6):
        draw = np.random.default_rng(seed)
        count, size = 300, 16
        prompts = size * draw.integers(10, 120, count) + draw.integers(0, size, count)
        texts, blocks = draw.integers(0, 12, count), prompts // size
        alone_s = float((prompts * 5e-5 + 7.5e-3).mean())
        requests = RequestTable(
            arrival_s=np.cumsum(draw.exponential(alone_s / load, count)),
            input_tokens=prompts,
            output_tokens=draw.integers(1, 20, count),
            prefix_ids=np.concatenate([1000 * t + np.arange(b) for t, b in zip(texts, blocks, strict=True)]),
            prefix_count=blocks,
            prefix_block=size,
        )
        settings = {
            "num_blocks": int(200 * draw.uniform(1, 3)),
            "block_size": size,
            "token_budget": int(draw.choice([300, 2048])),
            "max_seqs": 64,
        }
        speeds, waits = draw.choice([1e-6, 5e-6, 2e-5, 4e-5], 2), draw.choice([0.0, 5e-3, 2e-2], 2)
        tiers = tuple(tier(int(draw.integers(100, 2000)), *how) for how in zip(speeds, waits, strict=True))
        without = simulate(requests, engine_rules(family, **settings), SERVED)
        result = simulate(requests, engine_rules(family, tiers=tiers, **settings), SERVED)
        assert (result.loaded_tokens > 0).mean() > 0.1
        assert result.ttft_s.mean() < without.ttft_s.mean()
        assert result.e2e_s.mean() < without.e2e_s.mean()
        assert np.percentile(result.ttft_s, 99) <= np.percentile(without.ttft_s, 99)
        later = result.ttft_s > without.ttft_s + 1e-9
        assert later.mean() < 0.25
        assert (result.ttft_s - without.ttft_s).max() < 0.2


def test_tiers_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="tier blocks"):
        tier(0, 1.0)
    with pytest.raises(InputError, match="at most 2"):
        run(asked([0], [1]), tier(1, 1), tier(1, 1), tier(1, 1))
    with pytest.raises(InputError, match="prefix cache"):
        run(asked([0], [1]), tier(1, 1), prefix_cache=False)
    with pytest.raises(InputError, match="tiers"):
        engine_rules("nano-vllm", num_blocks=10, tiers=(tier(1, 1),))
