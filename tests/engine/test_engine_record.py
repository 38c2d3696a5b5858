"""A recorded run of 200 requests, played again in the simulator: the same decisions in every pass, the same TTFT."""

import numpy as np
import pytest
import torch

from calc.errors import InputError
from calc.simulation.replay import replay
from calc.simulation.rules import engine_rules
from probes.engine.decoder import Decoder
from probes.engine.engine import Engine
from probes.engine.shape import shape_of
from probes.engine_record import play, replayed, request_table
from probes.engine_server.loading import random_weights

pytestmark = pytest.mark.torch

CONFIG = {
    "model_type": "qwen3",
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "max_position_embeddings": 1024,
}
# Pools so small that requests wait, hit cached prefixes, lose them to others, and are preempted.
RUNS = {
    "vllm": {"token_budget": 64, "max_seqs": 12, "num_blocks": 30},
    "vllm, prompts not reserved whole": {
        "token_budget": 64,
        "max_seqs": 12,
        "num_blocks": 40,
        "long_prefill_threshold": 32,
        "watermark": 0.05,
        "reserve_full_prompt": False,
    },
    "vllm without prefix cache": {
        "token_budget": 64,
        "max_seqs": 12,
        "num_blocks": 40,
        "prefix_cache": False,
    },
    "nano-vllm": {"token_budget": 96, "max_seqs": 8, "num_blocks": 30},
    "nano-vllm without prefix cache": {
        "token_budget": 96,
        "max_seqs": 8,
        "num_blocks": 40,
        "prefix_cache": False,
    },
}


@pytest.fixture(scope="module")
def small():
    shape = shape_of(CONFIG)
    return Decoder(shape, random_weights(shape, dtype=torch.float32, device=torch.device("cpu"), spread=0.2))


def traffic(count, *, rate_per_s, seed):
    """(arrival, prompt, answer tokens); every second prompt begins with one of four texts of three blocks."""
    numbers = np.random.default_rng(seed)
    shared = [numbers.integers(0, 256, 48).tolist() for _ in range(4)]
    arrivals = np.cumsum(numbers.exponential(1 / rate_per_s, count))
    found = []
    for at in arrivals:
        prompt = numbers.integers(0, 256, int(numbers.integers(4, 80))).tolist()
        if numbers.random() < 0.5:
            prompt = shared[numbers.integers(4)] + prompt
        found.append((float(at), prompt, int(numbers.integers(1, 30))))
    return found


@pytest.mark.parametrize("name", list(RUNS))
def test_the_simulator_decides_as_the_engine_did(small, name):
    settings = {"block_size": 16, "prefix_cache": True} | RUNS[name]
    engine = Engine(small, engine_rules(name.split()[0].strip(","), **settings), recording=True)
    play(engine, traffic(200, rate_per_s=150, seed=len(name)))
    assert engine.counters.preemptions > 0
    assert (engine.counters.cached_tokens > 0) == settings["prefix_cache"]
    found = replayed(engine, compiled=False)
    assert found.first_difference is None, (
        found.decisions[found.first_difference],
        found.recorded[found.first_difference],
    )
    measured = np.array([request.first_s - request.arrival_s for request in engine.requests])
    assert np.abs(found.result.ttft_s / measured - 1).max() < 0.02
    ended = np.array([request.last_s - request.arrival_s for request in engine.requests])
    assert np.abs(found.result.e2e_s / ended - 1).max() < 0.02
    assert found.result.preemptions == engine.counters.preemptions
    assert found.result.cached_tokens.tolist() == [request.cached for request in engine.requests]


def test_a_different_scheduler_is_told_apart(small):
    """The comparison sees a token budget that is not the engine's."""
    rules = {"block_size": 16, "num_blocks": 60, "max_seqs": 12, "prefix_cache": False}
    engine = Engine(small, engine_rules("vllm", token_budget=64, **rules), recording=True)
    play(engine, traffic(12, rate_per_s=2000, seed=5))
    found = replay(
        request_table(engine),
        engine_rules("vllm", token_budget=60, **rules),
        pass_s=[one.end_s - one.begin_s for one in engine.passes],
        recorded=[one.decisions for one in engine.passes],
        compiled=False,
    )
    assert found.first_difference is not None


def test_a_replay_needs_passes(small):
    engine = Engine(small, engine_rules("vllm", num_blocks=8, prefix_cache=False), recording=True)
    play(engine, [(0.0, [1, 2, 3], 2)])
    table = request_table(engine)
    with pytest.raises(InputError, match="at least one pass"):
        replay(table, engine.rules, pass_s=[], recorded=[])
    with pytest.raises(InputError, match="whole batch"):
        replay(table, engine_rules("static", num_blocks=8), pass_s=[1.0], recorded=[])
