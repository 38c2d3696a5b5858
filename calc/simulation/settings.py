"""The settings of a run as its kernels read them: one SETTINGS record a pool, from requests, rules and cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from calc.errors import InputError
from calc.simulation.cluster import ROUTER_CODES, Cluster, Router
from calc.simulation.kernels import layout
from calc.simulation.memory import priority_ranks, uses_cache
from calc.simulation.pools import Pool
from calc.simulation.requests import RequestTable
from calc.simulation.rules import EngineFamily, EngineRules, Policy

SGLANG_FIRST_RATIO = 0.7  # --schedule-conservativeness 1.0: init_new_token_ratio of srt/managers/scheduler.py
SGLANG_LEAST_SHARE = 0.14  # min_new_token_ratio_factor
SGLANG_DECAY_STEPS = 600  # new_token_ratio_decay_steps


def settings_record(requests: RequestTable, pool: Pool, cluster: Cluster, *, skip: bool) -> Any:
    """The settings of a pool, one SETTINGS record: what its engine may do, where it stands, and what the requests ask of it.

    `skip`: whether equal decode passes may be leapt over.
    """
    rules = pool.rules
    record = np.zeros(1, layout.SETTINGS)[0]
    values = (
        _engine_values(rules)
        | _family_values(rules)
        | _feature_values(rules)
        | _pool_values(requests, pool, cluster)
        | _traffic_values(requests, rules)
    )
    values["skip"] = skip and rules.speculation is None and rules.beam_search is None
    for name, value in values.items():
        record[name] = value
    if _tiered(requests, rules):
        _set_tiers(record, rules)
    return record


def _engine_values(rules: EngineRules) -> dict[str, float]:
    """Limits that a person sets, whatever the engine."""
    return {
        "budget": rules.budget,
        "max_seqs": rules.places,
        "block_size": rules.block_size,
        "num_blocks": rules.num_blocks,
        "watermark": rules.watermark_blocks,
        "threshold": rules.long_prefill_threshold,
        "by_priority": rules.policy is Policy.PRIORITY,
        "mixed": rules.mixed_chunk,
        "prefill_limit": rules.prefill_limit,
        "drafts": rules.drafts,
        "ttl_s": layout.NEVER if rules.prefix_ttl_s is None else rules.prefix_ttl_s,
        "batch_size": rules.slots,
        "batch_timeout_s": layout.NEVER if rules.batch_timeout_s is None else rules.batch_timeout_s,
    }


def _family_values(rules: EngineRules) -> dict[str, float]:
    """What one engine does unlike another."""
    family = rules.family
    first = min(1.0, SGLANG_FIRST_RATIO * rules.conservativeness)
    least = first * SGLANG_LEAST_SHARE
    return {
        "chunked": rules.chunked_prefill and family is not EngineFamily.ORCA,
        "whole_prompt": rules.reserve_full_prompt or family is not EngineFamily.VLLM,
        "reserve_prompt": family is EngineFamily.SARATHI,
        "reserve_all": family is EngineFamily.ORCA,
        "admit_after_preemption": family is EngineFamily.SARATHI,
        "register_late": family in (EngineFamily.SGLANG, EngineFamily.NANO_VLLM),
        "list_decoded": family is not EngineFamily.SGLANG,
        "prefills_alone": family is EngineFamily.SGLANG and not rules.mixed_chunk,
        "pad": family is EngineFamily.STATIC,
        "ratio_first": first,
        "ratio_least": least,
        "ratio_decay": (first - least) / SGLANG_DECAY_STEPS,
    }


def _feature_values(rules: EngineRules) -> dict[str, float]:
    """Speculation, beams and swap, where the rules have them."""
    values: dict[str, float] = {}
    if rules.speculation is not None:
        values["acceptance"] = rules.speculation.acceptance
    if rules.beam_search is not None:
        values |= {"beams": True, "beam_drop": rules.beam_search.dropped}
    if rules.swap is not None:
        values |= {"swaps": True, "swap_block_s": rules.block_size * rules.swap.link.token_s}
    return values


def _pool_values(requests: RequestTable, pool: Pool, cluster: Cluster) -> dict[str, float]:
    """Where the pool stands in the cluster, how requests reach it, and how texts leave it."""
    looks = cluster.router in (Router.LEAST_OUTSTANDING, Router.POWER_OF_TWO, Router.PREFIX_AWARE)
    linked = pool.link is not None
    follows = requests.predecessor is not None
    several = pool.replicas > 1 or linked
    values: dict[str, float] = {
        "window": pool.step.window,
        "router": ROUTER_CODES[cluster.router],
        "replicas": pool.replicas,
        "first_replica": pool.first,
        "hands_over": pool.hands_over,
        "takes_over": pool.takes_over,
        "seed": cluster.seed,
        "successors": follows,
        "apart": not follows and not pool.hands_over,
        "feedback": _tiered(requests, pool.rules) or (several and (looks or follows or linked)),
    }
    if pool.link is not None:
        values |= {
            "shared_link": pool.link.shared,
            "token_link_s": pool.link.token_s,
            "link_latency_s": pool.link.latency_s,
        }
    return values


def _traffic_values(requests: RequestTable, rules: EngineRules) -> dict[str, float]:
    """What the requests ask of the engine: priority classes, samples, and names of texts."""
    cached = uses_cache(requests, rules)
    longest = int((requests.input_tokens + requests.output_tokens).max())
    values: dict[str, float] = {
        "classes": int(priority_ranks(requests, rules).max()) + 1,
        "spare": 1 if rules.family is EngineFamily.SARATHI else _widest(requests, rules),
        "cached": cached,
        "shared_text": cached and requests.shares_text,
        "key_width": longest // rules.block_size + 2,
    }
    if requests.prefix_ids is not None:
        values["ids_block"] = _ids_block(requests, rules)
        values["id_count"] = len(np.unique(requests.prefix_ids))
    return values


def _tiered(requests: RequestTable, rules: EngineRules) -> bool:
    """Whether text that leaves the card may be found in a memory behind it."""
    return bool(rules.tiers) and uses_cache(requests, rules)


def _set_tiers(record: Any, rules: EngineRules) -> None:
    """Where the memories behind the card begin among the blocks, and how long a text takes up from each."""
    ends = np.cumsum([tier.num_blocks for tier in rules.tiers])
    record["tiers"] = len(ends)
    record["tier_at"][: len(ends) + 1] = rules.num_blocks + np.concatenate(([0], ends))
    record["tier_token_s"][: len(ends)] = [tier.link.token_s for tier in rules.tiers]
    record["tier_latency_s"][: len(ends)] = [tier.link.latency_s for tier in rules.tiers]


def _widest(requests: RequestTable, rules: EngineRules) -> int:
    """Samples of the largest group, where an engine keeps a block free for each; 0 elsewhere."""
    if rules.family is not EngineFamily.VLLM_V0:
        return 0
    return 1 if requests.samples is None else int(requests.samples.max())


def _ids_block(requests: RequestTable, rules: EngineRules) -> int:
    size, block = requests.prefix_block, rules.block_size
    if size % block and block % size:
        raise InputError(
            "block_size", block, f"it must divide the trace's prefix blocks of {size} tokens, or the reverse"
        )
    return size
