"""The memory of a run, filled from requests, rules and settings; and what an engine could never run."""

from __future__ import annotations

from typing import Any

import numpy as np

from calc.errors import InputError
from calc.simulation.kernels import layout
from calc.simulation.pools import Pool
from calc.simulation.requests import Ints, RequestTable
from calc.simulation.rules import CACHING, EngineFamily, EngineRules, Policy, refuse_unmodelled
from calc.units import GIB

MAX_RUN_BYTES = 4 * GIB  # of all replicas of a run: more than any sensible one, and less than a machine has
_BLOCK_LINKS = ("bucket", "tier_bucket", "chain_next", "chain_previous")


def uses_cache(requests: RequestTable, rules: EngineRules) -> bool:
    """Whether blocks are named: the rules say so, or, where they leave it open, the requests share text."""
    if rules.family not in CACHING:
        return False
    return requests.shares_text if rules.prefix_cache is None else rules.prefix_cache


def check_requests(requests: RequestTable, pool: Pool) -> None:
    """Refuse requests that the engine could never run, by number."""
    rules = pool.rules
    draft_step = rules.speculation.draft_step if rules.speculation is not None else None
    if draft_step is not None and draft_step.window not in (0, pool.step.window):
        raise InputError(
            "draft window", draft_step.window, f"it must be the target's ({pool.step.window} tokens), or none"
        )
    limit = requests.output_tokens if requests.output_limit is None else requests.output_limit
    tokens = requests.input_tokens + (0 if pool.hands_over else requests.output_tokens - 1)
    spare = rules.watermark_blocks
    if requests.samples is not None and requests.samples.max() > 1:
        refuse_unmodelled(rules.family, "samples", int(requests.samples.max()))
    if rules.family is EngineFamily.VLLM_V0:
        check_groups(requests, rules)
        return
    if rules.family is EngineFamily.SGLANG:
        tokens = requests.input_tokens + limit + rules.block_size
    elif rules.family is EngineFamily.SARATHI:
        spare += 1
    elif rules.family is EngineFamily.ORCA and rules.reserve_tokens is not None:
        if np.any(tokens > rules.reserve_tokens):
            place = int(np.argmax(tokens))
            raise InputError(
                f"request {place}",
                int(tokens[place]),
                f"at most reserve_tokens ({rules.reserve_tokens}) are allowed",
            )
        tokens = np.full(len(requests), rules.reserve_tokens)
    blocks = -(-(tokens + rules.drafts) // rules.block_size) + spare
    place = int(np.argmax(blocks))
    if blocks[place] > rules.num_blocks:
        raise InputError(
            "num_blocks",
            rules.num_blocks,
            f"request {place} ({requests.input_tokens[place]} in, {requests.output_tokens[place]} out) "
            f"alone needs {blocks[place]} blocks of {rules.block_size}",
            next_step="Give more blocks, or leave such requests out.",
        )
    if not rules.chunked_prefill and int(tokens.max()) > rules.budget:
        raise InputError(
            "token_budget",
            rules.budget,
            f"without chunked prefill the longest request ({tokens.max()}) must fit",
        )


def check_groups(requests: RequestTable, rules: EngineRules) -> None:
    """The same for vLLM before V1: whole prompts in a pass, groups of samples on the card and, if swapped, on the host."""
    width = np.ones(len(requests), np.int64) if requests.samples is None else requests.samples
    size = rules.block_size
    tokens = requests.input_tokens + requests.output_tokens - 1
    longest = requests.input_tokens if rules.swap is not None else tokens
    shared = requests.input_tokens // size
    blocks = shared + width * (-(-(tokens + 1) // size) - shared + 1) + rules.watermark_blocks
    for field, limit, needs in (
        ("token_budget", rules.budget, longest),
        ("max_seqs", rules.places, width),
        ("num_blocks", rules.num_blocks, blocks),
    ):
        place = int(np.argmax(needs))
        if needs[place] > limit:
            raise InputError(
                field,
                limit,
                f"request {place} ({requests.input_tokens[place]} in, {requests.output_tokens[place]} out, "
                f"{width[place]} samples) alone needs {needs[place]}",
            )
    if width.max() > 1 and rules.swap is None:
        raise InputError(
            "swap", None, "a group of samples can only be preempted by swap: say where to, and how fast"
        )


def priority_ranks(requests: RequestTable, rules: EngineRules) -> Ints:
    """Priority classes as 0, 1, ...; all 0 without priorities."""
    if rules.policy is not Policy.PRIORITY or requests.priority is None:
        return np.zeros(len(requests), np.int64)
    return np.unique(requests.priority, return_inverse=True)[1].astype(np.int64)


def request_records(requests: RequestTable, rules: EngineRules) -> Any:
    """One record a request, as the loops keep them: what it asks for, and nothing that happened yet."""
    count = len(requests)
    records = np.zeros(count, layout.REQUEST)
    records["arrival"] = requests.arrival_s
    records["input"] = requests.input_tokens
    records["target"] = requests.input_tokens
    records["output"] = requests.output_tokens
    records["limit"] = requests.output_tokens if requests.output_limit is None else requests.output_limit
    for name in ("scheduled", "first", "last", "emit", "late", "due"):
        records[name] = -1
    for name in (
        "successor", "slot", "position", "window_position", "next", "previous", "ring_next", "ring_previous",
        "arrival_heap", "replica",
    ):  # fmt: skip
        records[name] = layout.NONE
    records["width"] = 1 if requests.samples is None else requests.samples
    records["priority"] = priority_ranks(requests, rules)
    if rules.family is EngineFamily.ORCA:
        own = requests.input_tokens + requests.output_tokens - 1
        longest = own if rules.reserve_tokens is None else np.full(count, rules.reserve_tokens)
        records["reserve"] = -(-longest // rules.block_size)
    records["stream"] = np.arange(count)
    if requests.stream is not None:
        names = np.where(requests.stream >= 0, requests.stream, np.arange(count) + requests.stream.max() + 1)
        records["stream"] = np.unique(names, return_inverse=True)[1]
    if requests.predecessor is not None:
        followers = np.flatnonzero(requests.predecessor >= 0)
        records["follows"][followers] = 1
        records["arrival"][followers] = layout.NEVER
        records["successor"][requests.predecessor[followers]] = followers
        if requests.think_s is not None:
            records["think"] = requests.think_s
    if requests.prefix_count is not None:
        records["id_count"] = requests.prefix_count
        records["id_start"] = np.concatenate(([0], np.cumsum(requests.prefix_count)[:-1]))
    return records


def move_records(requests: RequestTable, *, needed: bool) -> Any:
    """Where requests stand that travel between pools; a single unused record if none ever does."""
    moves = np.zeros(len(requests) if needed else 1, layout.MOVE)
    for name in ("sent", "landed"):
        moves[name] = -1
    for name in ("source", "source_slot", "heap", "place"):
        moves[name] = layout.NONE
    return moves


def all_replicas(requests: RequestTable, pools: tuple[Pool, ...], settings: Any) -> layout.Replicas:
    """The replicas of all pools, each array as large as the largest pool needs."""
    parts = [replica_arrays(requests, pool, one) for pool, one in zip(pools, settings, strict=True)]
    if len(parts) == 1:
        return parts[0]
    for number, part in enumerate(parts):
        part.state["pool"] = number
    return layout.Replicas(*(_stacked(arrays) for arrays in zip(*parts, strict=True)))


def _stacked(arrays: tuple[Any, ...]) -> Any:
    """Arrays one after the other, the smaller ones filled up with what means nothing there."""
    shape = np.max([array.shape[1:] for array in arrays], axis=0)
    together = np.zeros((sum(len(array) for array in arrays), *shape.astype(int)), arrays[0].dtype)
    if together.dtype == layout.BLOCK:
        for name in _BLOCK_LINKS:
            together[name] = layout.NONE
    begin = 0
    for array in arrays:
        place = (slice(begin, begin + len(array)), *(slice(0, size) for size in array.shape[1:]))
        together[place] = array
        begin += len(array)
    return together


def replica_arrays(requests: RequestTable, pool: Pool, settings: Any) -> layout.Replicas:
    """The books of a pool's replicas: free blocks, queues and the decoding set, all empty."""
    rules = pool.rules
    count = pool.replicas
    cached = bool(settings["cached"])
    total = len(requests)
    holders = rules.places
    if rules.family is EngineFamily.NANO_VLLM or pool.link is not None or rules.tiers:
        holders = max(holders, rules.num_blocks)
    if rules.beam_search is not None and rules.swap is not None:
        holders += rules.swap.num_blocks  # whoever is swapped keeps its beams
    holders = min(holders, total) + 2
    _check_room(requests, pool, holders=holders, cached=cached)
    state = np.zeros(count, layout.STATE)
    for name in ("run_head", "run_tail", "free_head", "free_tail", "partial", "ready_head", "ready_tail"):
        state[name] = layout.NONE
    state["wake"] = layout.NEVER
    state["free"] = rules.num_blocks
    state["host_free"] = rules.swap.num_blocks if rules.swap is not None else 0
    state["series_width_s"] = layout.SERIES_FIRST_WIDTH_S
    state["ratio_base"] = settings["ratio_first"]
    width = max(holders, rules.block_size, layout.LIST_ROWS, int(settings["classes"])) + 1
    lists = np.zeros((count, layout.LIST_ROWS, width), np.int32)
    for line in (layout.RING, layout.WAITING_HEAD, layout.WAITING_TAIL):
        lists[:, line] = layout.NONE
    blocks = np.zeros((count, rules.num_blocks if cached else 1), layout.BLOCK)
    texts = np.zeros((count, 1), np.int32)
    if cached:
        longest = int((requests.input_tokens + requests.output_tokens).max())
        settings["table_width"] = -(-(longest + rules.drafts) // rules.block_size) + 1
        settings["ids_at"] = holders * settings["table_width"]
        ids = np.zeros(1, np.int32)
        if requests.prefix_ids is not None:
            ids = np.unique(requests.prefix_ids, return_inverse=True)[1].astype(np.int32)
        texts = np.zeros((count, int(settings["ids_at"]) + len(ids)), np.int32)
        texts[:, int(settings["ids_at"]) :] = ids
        lists[:, layout.FREE_SLOTS, :holders] = np.arange(holders)
        state["free_slots"] = holders
        for name in _BLOCK_LINKS:
            blocks[name] = layout.NONE
        blocks["previous"] = np.arange(-1, rules.num_blocks - 1)
        blocks["next"] = np.append(np.arange(1, rules.num_blocks), layout.NONE)
        state["free_head"], state["free_tail"] = 0, rules.num_blocks - 1
    if settings["beams"]:
        blocks, texts = _beam_trees(requests, rules, state, lists, settings)
    if settings["tiers"]:
        blocks = np.concatenate([blocks, _tier_entries(state, settings)], axis=1)
    return layout.Replicas(state, lists, blocks, texts)


def _check_room(requests: RequestTable, pool: Pool, *, holders: int, cached: bool) -> None:
    """Refuse a run whose replicas, with a record for each block and each block of a running text, outgrow a machine."""
    rules = pool.rules
    each = layout.STATE.itemsize + 4 * layout.LIST_ROWS * holders
    if cached:
        longest = int((requests.input_tokens + requests.output_tokens).max()) + rules.drafts
        ids = 0 if requests.prefix_ids is None else len(requests.prefix_ids)
        each += layout.BLOCK.itemsize * rules.num_blocks
        each += 4 * (ids + holders * (longest // rules.block_size + 2))
    if each * pool.replicas > MAX_RUN_BYTES:
        raise InputError(
            "replicas",
            pool.replicas,
            f"with {rules.num_blocks:,} blocks and so long texts they take {each * pool.replicas / GIB:.3g} GiB, "
            f"and a run may take {MAX_RUN_BYTES / GIB:g}",
            next_step="Simulate fewer replicas with their share of the rate, fewer or shorter requests, or no shared text.",
        )


def _beam_trees(
    requests: RequestTable, rules: EngineRules, state: Any, lists: Any, settings: Any
) -> tuple[Any, Any]:
    """The blocks from which beams build their trees, on the card and the host, and a row of last blocks for each request.

    A row holds two generations: the present one, and the next while it is chosen.
    """
    widest = 1 if requests.samples is None else int(requests.samples.max())
    holders = lists.shape[2] - 1
    columns = (requests.input_tokens % rules.block_size + requests.output_tokens) // rules.block_size + 1
    most = rules.num_blocks + (rules.swap.num_blocks if rules.swap is not None else 0)
    nodes = int(min(most, widest * columns.sum()))
    settings["table_width"] = 2 * widest
    blocks = np.zeros((len(state), nodes), layout.BLOCK)
    blocks["next"] = np.append(np.arange(1, nodes), layout.NONE)
    texts = np.full((len(state), holders * 2 * widest), layout.NONE, np.int32)
    lists[:, layout.FREE_SLOTS, :holders] = np.arange(holders)
    state["free_slots"] = holders
    state["free_head"] = 0
    return blocks, texts


def _tier_entries(state: Any, settings: Any) -> Any:
    """The entries of all tiers of each replica, empty and in a list for each tier; they stand behind the card's blocks."""
    places = settings["tier_at"][: int(settings["tiers"]) + 1]
    first = int(places[0])
    entries = np.zeros((len(state), int(places[-1]) - first), layout.BLOCK)
    for name in _BLOCK_LINKS:
        entries[name] = layout.NONE
    for tier in range(len(places) - 1):
        begin, end = int(places[tier]), int(places[tier + 1])
        mine = entries[:, begin - first : end - first]
        mine["previous"] = np.arange(begin - 1, end - 1)
        mine["next"] = np.arange(begin + 1, end + 1)
        mine["previous"][:, 0] = mine["next"][:, -1] = layout.NONE
        state["tier_head"][:, tier], state["tier_tail"][:, tier] = begin, end - 1
    return entries
