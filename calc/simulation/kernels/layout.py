"""The memory of a simulation: one record a request, one record and a few arrays a replica, and the settings.

Indices of requests are their order in the table. -1 means "none" in links and positions; a time below zero means
"not yet". Records, and not one array a field, so that a request's fields share cache lines and calls pass pointers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

Array = Any  # numpy array outside, numba array inside
Record = Any  # numpy.void outside, numba record inside
Requests = Any  # array of REQUEST
Kernel = TypeVar("Kernel", bound=Callable[..., Any])

NONE = -1
NEVER = 1e300  # a time that does not come

# States of a request
FUTURE, WAITING, PREFILL, DECODE, PARKED, DONE, MOVING, SWAPPED = 0, 1, 2, 3, 4, 5, 6, 7

# Routers
ROUND_ROBIN, RANDOM, LEAST_OUTSTANDING, POWER_OF_TWO, PREFIX_AWARE = 0, 1, 2, 3, 4

# Defaults of the cache-aware policy of SGLang's gateway (lightseekorg/smg, --cache-threshold, --balance-abs-threshold,
# --balance-rel-threshold): follow the cache if it holds this share of the prompt, unless loads differ by both
CACHE_SHARE, MOST_APART, MOST_RATIO = 0.3, 64, 1.5

# Inter-token gaps are counted in logarithmic bins, half a percent wide, from one microsecond.
GAP_FLOOR_S = 1e-6
GAP_BIN_LOG = 0.005
GAP_BINS = 6000

# Series over time: time-weighted sums in bins whose width doubles when the run outgrows them.
SERIES_BINS = 512
SERIES_FIRST_WIDTH_S = 1e-3
SERIES_SECONDS, SERIES_RUNNING, SERIES_WAITING, SERIES_BLOCKS, SERIES_PREFILL, SERIES_DECODE = (
    0,
    1,
    2,
    3,
    4,
    5,
)
SERIES_ROWS = 6

# Groups of requests that joined the decoding set between two decode passes; more are counted with the last one.
MAX_GROUPS = 512

MAX_KNOTS = 64  # of a step table, each way
MAX_TIERS = 2  # behind the card: host memory, SSD

SGLANG_CLIP_TOKENS = 4096  # CLIP_MAX_NEW_TOKENS of srt/managers/schedule_policy.py
SGLANG_RETRACT_STEPS = 20  # retract_decode_steps of srt: room that a retraction makes for the rest

# Rows of Replica.lists
DUE_HEAP, WINDOW_HEAP = (
    0,
    1,
)  # decoding requests by finish tick, and by the tick at which they fill the window
CROSSING, RING = (
    2,
    3,
)  # by tick modulo block size: how many decoding requests need a block then, and the first of them
PREFILLING = 4  # requests that are partly prefilled, in running order
CHUNK_REQUEST, CHUNK_TOKENS = 5, 6  # the prefill part of the present pass
WAITING_HEAD, WAITING_TAIL = 7, 8  # by priority class
FREE_SLOTS = 9  # rows of the block table that nobody uses
DEPARTING = 10  # requests whose text begins to travel in this pass
LIST_ROWS = 11

REQUEST = np.dtype(
    [
        ("arrival", np.float64),  # s; of a successor: set when its predecessor has finished
        ("think", np.float64),  # s between the end of the predecessor and this arrival
        ("scheduled", np.float64),  # s, first admission
        ("first", np.float64),  # s, first token
        ("last", np.float64),  # s, last token
        ("emit", np.float64),  # s, its latest token as of when it last joined or left the decoding set
        ("late", np.float64),  # s, last token of a decoding request that was left out of the last pass
        ("due", np.int64),  # tick of its replica at which it finishes, while decoding
        ("window_due", np.int64),  # tick at which its context fills the window
        ("mark", np.int64),  # pass in which it was last scheduled, in passes under pressure
        ("id_start", np.int64),  # where its prefix ids begin
        ("id_count", np.int32),
        ("input", np.int32),  # prompt tokens
        ("output", np.int32),  # tokens it will generate, at least 1
        ("limit", np.int32),  # tokens it may generate, as the engine knows it
        ("width", np.int32),  # samples or beams that it writes in step
        ("copies", np.int32),  # shared last blocks that its beams copy in their next pass
        ("priority", np.int32),  # rank of its class, 0 first
        ("reserve", np.int32),  # blocks that a reserving engine sets aside
        ("successor", np.int32),  # request that comes after this one
        ("stream", np.int32),  # whose text it continues: names its generated blocks
        ("computed", np.int32),  # tokens whose keys and values are cached, while it is not decoding
        ("target", np.int32),  # tokens to compute before its next token: prompt and tokens so far
        ("held", np.int32),  # blocks
        ("slot", np.int32),  # row of the block table
        ("position", np.int32),  # in the heap of finish ticks, or of arrivals
        ("window_position", np.int32),
        ("next", np.int32),  # in the running or waiting list
        ("previous", np.int32),
        ("ring_next", np.int32),  # among those that cross a block boundary in the same ticks
        ("ring_previous", np.int32),
        ("arrival_heap", np.int32),  # the heap of successors whose arrival is known, by place
        ("replica", np.int32),
        ("preemptions", np.int32),
        ("cached", np.int32),  # prompt tokens that the prefix cache held at first admission
        ("follows", np.int8),  # 1: arrives after a predecessor, not at a given time
        ("state", np.int8),
    ],
    align=True,
)

MOVE = np.dtype(
    [
        ("event", np.float64),  # s, when it arrives at its next pool, or its cached text has arrived there
        ("sent", np.float64),  # s, when its first byte goes out
        ("landed", np.float64),  # s, when its last byte is there; below zero before it was sent
        ("source", np.int32),  # replica that computed its prompt
        ("source_slot", np.int32),  # what it still holds there
        ("source_held", np.int32),
        ("loaded", np.int32),  # tokens of its text that came from a tier
        ("heap", np.int32),  # the heap of requests by their next event, by place
        ("place", np.int32),
    ],
    align=True,
)

BLOCK = np.dtype(
    [
        ("name", np.int64),  # of its text; 0: not cached
        ("freed", np.float64),  # s, when its last holder let it go
        ("holders", np.int32),
        ("next", np.int32),  # free list
        ("previous", np.int32),
        ("bucket", np.int32),  # the hash table: first block whose name is congruent to this place
        ("tier_bucket", np.int32),  # the same for the names of a tier
        ("chain_next", np.int32),
        ("chain_previous", np.int32),
    ],
    align=True,
)

STATE = np.dtype(
    [
        (name, np.float64)
        for name in (
            "now", "wake", "last_emit", "busy_s", "gap_sum_s", "longest_gap_s", "series_width_s", "ratio_base", "pass_start_s",
            "link_free_s", "tier_free_s",
        )
    ]
    + [
        (name, np.int64)
        for name in (
            "tick", "running", "waiting", "decoding", "prefilling", "parked", "late", "groups", "partial",
            "run_head", "run_tail", "heap", "window_heap", "below_window", "kv_tokens", "window_tokens",
            "free", "free_head", "free_tail", "free_slots", "last_finished", "finished", "blocked", "ratio_steps",
            "steps", "passes", "preemptions", "prefill_tokens", "decode_tokens", "slot_steps", "useful_slots",
            "mixed_steps", "gap_count", "pass_steps", "pass_prefill", "pass_decoding", "looked_up_blocks", "hit_blocks", "peak_blocks",
            "peak_running", "pool", "ready", "ready_head", "ready_tail", "arriving", "owed", "pass_chunks", "departing",
            "drafted_passes", "drafted_tokens", "loaded_blocks",
            "seats", "swapped", "swap_head", "swap_blocks", "swap_outs", "host_free", "host_full",
            "copies", "beams_dropped", "beam_copies",
        )
    ]
    + [
        ("joined_at", np.float64, (MAX_GROUPS,)),
        ("joined_count", np.int64, (MAX_GROUPS,)),
        ("gaps", np.int64, (GAP_BINS,)),
        ("tier_head", np.int64, (MAX_TIERS,)),
        ("tier_tail", np.int64, (MAX_TIERS,)),
        ("series", np.float64, (SERIES_ROWS, SERIES_BINS)),
    ],
    align=True,
)  # fmt: skip

SETTINGS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "budget", "max_seqs", "block_size", "num_blocks", "watermark", "threshold", "chunked", "whole_prompt",
            "reserve_prompt", "reserve_all", "spare", "admit_after_preemption", "by_priority", "cached",
            "register_late", "list_decoded", "mixed", "prefill_limit", "window", "classes", "skip", "feedback",
            "shared_text", "id_count", "key_width", "ids_block", "batch_size", "router", "replicas", "pad",
            "successors", "table_width", "ids_at", "hands_over", "takes_over", "first_replica", "seed", "shared_link",
            "drafts", "tiers", "swaps", "apart", "beams", "prefills_alone",
        )
    ]
    + [
        (name, np.float64)
        for name in (
            "ratio_first", "ratio_least", "ratio_decay", "batch_timeout_s", "token_link_s", "link_latency_s",
            "acceptance", "ttl_s", "swap_block_s", "beam_drop",
        )
    ]
    + [
        ("tier_at", np.int64, (MAX_TIERS + 1,)),  # where each tier begins in Replica.blocks, behind the card's own, and where the last ends
        ("tier_token_s", np.float64, (MAX_TIERS,)),
        ("tier_latency_s", np.float64, (MAX_TIERS,)),
    ],
    align=True,
)  # fmt: skip

WORLD = np.dtype(
    [(name, np.int64) for name in ("arrived", "heap", "done", "stuck", "events")]
    + [("robin", np.int64, (2,)), ("link_free_s", np.float64)],
    align=True,
)

TABLE = np.dtype(
    [
        ("prefill_knots", np.float64, (MAX_KNOTS,)),
        ("decode_knots", np.float64, (MAX_KNOTS,)),
        ("base", np.float64, (MAX_KNOTS, MAX_KNOTS)),
        ("num_prefill", np.int64),
        ("num_decode", np.int64),
        ("kv_s", np.float64),  # per attended token of decoding requests
        ("window_s", np.float64),  # per attended token, counted up to the window
        ("attention_s", np.float64),  # per chunk token x (prefix + half the chunk)
    ],
    align=True,
)


class Replica(NamedTuple):
    """One engine: a row of `Replicas`."""

    state: Array  # one record
    lists: Array
    blocks: Array
    texts: Array  # the block tables, `table_width` entries a slot; from `ids_at` on the compact prefix ids


class Run(NamedTuple):
    """What the replicas of a pool share: settings, step time, and who has arrived."""

    settings: Record
    world: Record
    table: Record
    draft: Record  # step time of the draft model


class Runs(NamedTuple):
    """The same for all pools: settings and step time have a leading axis over them."""

    settings: Array
    world: Record
    table: Array
    draft: Array
    moves: Array  # one MOVE a request, or a single one if nothing ever moves


class Replicas(NamedTuple):
    """All engines, with a leading axis over them."""

    state: Array
    lists: Array
    blocks: Array
    texts: Array


def inlined(kernel: Kernel) -> Kernel:
    """Mark a kernel that is called so often that its call would cost more than its work."""
    kernel.inlined = True  # type: ignore[attr-defined]
    return kernel


def row(replicas: Replicas, index: int) -> Replica:
    """One replica's view of the stacked arrays."""
    return Replica(
        replicas.state[index : index + 1],
        replicas.lists[index],
        replicas.blocks[index],
        replicas.texts[index],
    )
