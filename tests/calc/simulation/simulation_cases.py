"""Random requests and rules for the properties that every engine must have; small pools, so that they fill."""

from dataclasses import replace

import numpy as np

from calc.simulation.cluster import Cluster, Router
from calc.simulation.disaggregation import PrefillPool
from calc.simulation.link import KvTier, Link
from calc.simulation.requests import RequestTable
from calc.simulation.rules import FEATURES, BeamSearch, EngineFamily, Policy, Speculation, engine_rules
from calc.simulation.step_table import StepTable

AFFINE = StepTable.affine(fixed_s=7.5e-3, prefill_s=5e-5, decode_s=2e-5, kv_s=1.5e-7)
CURVED = StepTable(
    prefill_knots=(0.0, 1.0, 64.0, 512.0),
    decode_knots=(0.0, 1.0, 8.0, 32.0),
    base_s=(
        (5e-3, 6e-3, 8e-3, 1e-2),
        (8e-3, 9e-3, 1e-2, 2e-2),
        (1e-2, 2e-2, 2.5e-2, 3e-2),
        (4e-2, 5e-2, 6e-2, 7e-2),
    ),
    kv_s=2e-7,
    attention_s=1e-8,
    window=40,
    window_s=3e-7,
)
FAMILIES = tuple(EngineFamily)


def random_requests(draw, *, followers=False, texts=None, count=None):
    """A small random table: bursts and pauses, short and long prompts and answers."""
    count = count or int(draw.integers(2, 40))
    gaps = draw.exponential(draw.choice([0.002, 0.02, 0.3]), count)
    arrival = np.cumsum(gaps)
    table = {
        "arrival_s": arrival,
        "input_tokens": draw.integers(1, 120, count),
        "output_tokens": np.where(draw.random(count) < 0.2, 1, draw.integers(1, 90, count)),
        "priority": draw.integers(0, 3, count),
    }
    if followers:
        predecessor = np.full(count, -1)
        for i in range(1, count):
            before = int(draw.integers(0, i))
            if draw.random() < 0.6 and before not in predecessor:
                predecessor[i] = before
        arrival[predecessor >= 0] = np.nan
        table |= {"predecessor": predecessor, "think_s": draw.exponential(0.1, count)}
    if texts == "stream":
        table["stream"] = draw.integers(-1, 4, count)
    if texts == "ids":
        counts = table["input_tokens"] // 16
        table |= {
            "prefix_ids": np.concatenate(
                [1000 * draw.integers(0, 3) + np.arange(c) for c in counts] or [[]]
            ).astype(int),
            "prefix_count": counts,
            "prefix_block": 16,
        }
    return RequestTable(**table)


def random_rules(draw, family, requests, *, cached=False):
    """Rules of a family with a pool that holds the largest request and little more."""
    size = int(draw.choice([1, 4, 16]))
    longest = int((requests.input_tokens + requests.output_tokens).max())
    most = -(-longest // size) + 3
    blocks = int(most * draw.uniform(1.0, 3.0))
    seqs = int(draw.choice([1, 3, 8, 30]))
    settings = {"block_size": size, "num_blocks": blocks}
    budget = seqs + int(draw.choice([1, 20, 200]))
    if family is EngineFamily.VLLM:
        settings |= {
            "max_seqs": seqs,
            "token_budget": budget,
            "policy": draw.choice(list(Policy)),
            "long_prefill_threshold": int(draw.choice([0, 0, 9])),
            "reserve_full_prompt": bool(draw.random() < 0.5),
            "watermark": float(draw.choice([0.0, 0.02])),
        }
        if draw.random() < 0.2:
            settings |= {
                "chunked_prefill": False,
                "token_budget": longest + seqs,
                "long_prefill_threshold": 0,
            }
    elif family is EngineFamily.VLLM_V0:
        settings |= {"max_seqs": seqs + 4, "token_budget": longest + int(draw.choice([4, 300])) + seqs}
        settings["num_blocks"] += 4
    elif family is EngineFamily.SARATHI:
        settings |= {"max_seqs": seqs, "token_budget": budget}
    elif family is EngineFamily.NANO_VLLM:
        settings |= {"max_seqs": seqs, "token_budget": int(draw.choice([30, 100, 1000]))}
    elif family is EngineFamily.SGLANG:
        settings |= {
            "max_seqs": seqs,
            "token_budget": int(draw.choice([16, 32, 100, 1000])),
            "num_blocks": blocks + 2,
            "mixed_chunk": bool(draw.random() < 0.5),
            "conservativeness": float(draw.choice([0.2, 1.0])),
            "max_prefill_tokens": int(draw.choice([40, 16384])),
        }
    elif family is EngineFamily.ORCA:
        settings |= {"max_seqs": seqs, "reserve_tokens": draw.choice([None, longest])}
    else:
        settings |= {"batch_size": seqs, "batch_timeout_s": draw.choice([None, 0.05])}
    if family in (EngineFamily.VLLM, EngineFamily.SGLANG, EngineFamily.NANO_VLLM):
        settings["prefix_cache"] = cached
        if cached:
            settings["prefix_ttl_s"] = draw.choice([None, 0.05, 1.0])
    settings["num_blocks"] += int(settings["num_blocks"] * settings.get("watermark", 0.01)) + 2
    return engine_rules(family, **settings)


def random_cluster(draw, family):
    routers = [one for one in Router if one is not Router.PREFIX_AWARE or family in FEATURES["prefix_aware"]]
    return Cluster(
        replicas=int(draw.integers(2, 4)), router=draw.choice(routers), seed=int(draw.integers(100))
    )


def random_groups(draw, requests, rules):
    """Requests of one to four samples, and a host that holds whatever is swapped."""
    samples = draw.integers(1, 5, len(requests))
    tokens = int((requests.input_tokens + requests.output_tokens).max())
    blocks = 4 * (-(-tokens // rules.block_size) + 2)
    swap = KvTier(
        num_blocks=10**6,
        link=Link(kv_bytes_per_token=1.0, bandwidth_bytes_per_s=float(draw.choice([5e3, 1e6]))),
    )
    rules = replace(rules, swap=swap, num_blocks=max(rules.num_blocks, int(1.03 * blocks) + 1))
    return replace(requests, samples=samples), rules


def random_beams(draw, rules):
    """The same rules with beams that never, sometimes or always compete."""
    return replace(rules, beam_search=BeamSearch(dropped=float(draw.choice([0.0, 0.2, 0.6, 1.0]))))


def random_speculation(draw, rules):
    """The same rules with a draft, a budget that carries it and a few more blocks."""
    drafts = int(draw.integers(1, 8))
    draft_step = draw.choice([None, AFFINE.scaled(0.1)])
    acceptance = float(draw.choice([0.0, 0.6, 0.9, 1.0]))
    more = {"speculation": Speculation(drafts=drafts, acceptance=acceptance, draft_step=draft_step)}
    if rules.family is EngineFamily.VLLM:
        more["token_budget"] = rules.budget + rules.places * drafts
    return replace(rules, num_blocks=rules.num_blocks + drafts, mixed_chunk=False, **more)


def random_tiers(draw, rules):
    """One or two small tiers, fast enough to be used or too slow to be."""
    tiers = tuple(
        KvTier(
            num_blocks=int(draw.integers(3, 60)),
            link=Link(
                kv_bytes_per_token=1.0,
                bandwidth_bytes_per_s=float(draw.choice([500.0, 3e4, 1e6])),
                latency_s=float(draw.choice([0.0, 2e-3])),
            ),
        )
        for _ in range(int(draw.integers(1, 3)))
    )
    return replace(rules, tiers=tiers)


def random_disaggregation(draw):
    """Two pools of one to three replicas, and a link that is sometimes the narrowest part."""
    link = Link(
        kv_bytes_per_token=1.0,
        bandwidth_bytes_per_s=float(draw.choice([300.0, 5e3, 1e6])),
        latency_s=float(draw.choice([0.0, 0.03])),
        shared=bool(draw.random() < 0.5),
    )
    return Cluster(
        replicas=int(draw.integers(1, 4)),
        router=draw.choice(list(Router)),
        seed=int(draw.integers(100)),
        prefill=PrefillPool(
            replicas=int(draw.integers(1, 4)), link=link, step=draw.choice([None, AFFINE.scaled(0.5)])
        ),
    )
