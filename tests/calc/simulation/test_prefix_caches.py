"""Prefixes that outlive their request: when they expire, and routers that follow them; cases counted by hand."""

import numpy as np
import pytest

from calc.errors import InputError
from calc.simulation.cluster import Cluster, Router
from calc.simulation.requests import RequestTable
from calc.simulation.rules import engine_rules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable

UNIT = StepTable.affine(fixed_s=1.0, prefill_s=0.0, decode_s=0.0, kv_s=0.0)


def asked(arrivals, texts, *, prompt=16, answer=1):
    """Prompts of four blocks of four tokens; equal texts are equal prompts."""
    count = len(arrivals)
    ids = np.concatenate([100 * text + np.arange(prompt // 4) for text in texts])
    return RequestTable(
        arrival_s=np.array(arrivals, float),
        input_tokens=np.full(count, prompt),
        output_tokens=np.full(count, answer),
        prefix_ids=ids,
        prefix_count=np.full(count, prompt // 4),
        prefix_block=4,
    )


def run(requests, family="vllm", cluster=None, **settings):
    rules = engine_rules(family, block_size=4, **{"num_blocks": 100, **settings})
    return simulate(requests, rules, UNIT, cluster=cluster, compiled=False)


@pytest.mark.parametrize("family", ["vllm", "sglang", "nano-vllm"])
def test_a_text_expires_when_nobody_used_it_for_so_long(family):
    """Freed at 1, 21 and 52: used again after 19, 30 and 28 seconds; 12 of 16 tokens hit (never the last block)."""
    requests = asked([0, 20, 51, 80], [1, 1, 1, 1])
    assert run(requests, family).cached_tokens.tolist() == [0, 12, 12, 12]
    assert run(requests, family, prefix_ttl_s=29.0).cached_tokens.tolist() == [0, 12, 0, 12]
    assert run(requests, family, prefix_ttl_s=25.0).cached_tokens.tolist() == [0, 12, 0, 0]
    assert run(requests, family, prefix_ttl_s=5.0).cached_tokens.tolist() == [0, 0, 0, 0]


def test_a_text_in_use_does_not_expire():
    requests = asked([0, 20], [1, 1], answer=30)
    assert run(requests, prefix_ttl_s=5.0).cached_tokens.tolist() == [0, 12]


def test_the_prefix_router_sends_a_text_where_it_is_cached():
    """Four texts on four replicas: round robin of five askers spreads each over all, the router keeps each at one."""
    texts = [i % 5 % 4 for i in range(40)]
    requests = asked(np.arange(40) * 10.0, texts)
    spread = run(requests, cluster=Cluster(replicas=4))
    kept = run(requests, cluster=Cluster(replicas=4, router=Router.PREFIX_AWARE))
    assert all(len(set(kept.replica[np.array(texts) == text])) == 1 for text in range(4))
    assert kept.cached_tokens.sum() == 36 * 12
    assert spread.cached_tokens.sum() < kept.cached_tokens.sum()


def test_the_prefix_router_gives_way_when_one_replica_is_swamped():
    """All ask for one text at once: the others help as soon as loads are 64 apart."""
    requests = asked([0.0] + [5.0] * 200, [1] * 201, answer=50)
    cluster = Cluster(replicas=2, router=Router.PREFIX_AWARE)
    result = run(requests, cluster=cluster, num_blocks=10_000)
    counts = np.bincount(result.replica, minlength=2)
    assert counts.min() > 60
    few = asked([0.0] + [5.0] * 60, [1] * 61, answer=50)
    assert len(set(run(few, cluster=cluster, num_blocks=10_000).replica)) == 1


def test_what_has_no_cache_refuses():
    with pytest.raises(InputError, match="prefix_ttl_s"):
        run(asked([0], [1]), "orca", prefix_ttl_s=3.0)
    with pytest.raises(InputError, match="prefix_aware"):
        run(asked([0], [1]), "sarathi", cluster=Cluster(replicas=2, router=Router.PREFIX_AWARE))
    with pytest.raises(InputError, match="needs the prefix cache"):
        run(asked([0], [1]), prefix_ttl_s=3.0, prefix_cache=False)
