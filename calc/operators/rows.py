"""One row of the operator table in words: `Operator`, its kind, what drives it, whose cache it reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from math import inf


class Kind(StrEnum):
    """What an operator is; the profile has one efficiency per kind."""

    GEMM = "gemm"
    EXPERTS = "experts"
    ATTENTION = "attention"
    LATENT_ATTENTION = "latent attention"
    PREFILL_ATTENTION = "prefill attention"
    INDEXER = "indexer"
    MIXER = "mixer"
    ELEMENTWISE = "elementwise"
    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    POINT_TO_POINT = "point-to-point"


KINDS = tuple(Kind)
COLLECTIVES = (
    Kind.ALL_REDUCE,
    Kind.ALL_GATHER,
    Kind.REDUCE_SCATTER,
    Kind.ALL_TO_ALL,
    Kind.POINT_TO_POINT,
)


class Driver(IntEnum):
    """Which count of the pass an operator's per-token numbers are multiplied with."""

    TOKENS = 0
    DECODE_TOKENS = 1
    PREFILL_TOKENS = 2
    OUTPUT_ROWS = 3
    ENCODER_TOKENS = 4
    PREFIX_AND_PREFILL = 5  # a latent cache is expanded again for the cached part of a prompt


class Reads(IntEnum):
    """Whose keys and values an attention operator reads."""

    NOTHING = 0
    DECODE_CACHE = 1
    PROMPT = 2
    ENCODER_SELF = 3
    ENCODER_CACHE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator, per instance, with what it does for each unit of its driver.

    weight_bytes: read once whenever the driver is above zero. quantised_bytes_per_token: read and written by a pass that
    quantises the inputs of a matrix product, beside its activations. kv_bytes_per_cached_token: read for every cached token that
    a sequence attends to. stride: cached tokens that share one entry. flop_per_pair: for each (query, key) pair. state_bytes_per_sequence: read and written per
    sequence of the step. n_experts, top_k: weight_bytes shrink to the experts that the tokens touch. token_ranks: attention
    ranks whose tokens come together here. ranks: GPUs of a collective. kv_heads: of an attention, on this GPU.
    """

    name: str
    group: str
    kind: Kind
    count: float = 1.0
    driver: Driver = Driver.TOKENS
    format: str = "bf16"
    weight_bytes: float = 0.0
    flop_per_token: float = 0.0
    activation_bytes_per_token: float = 0.0
    quantised_bytes_per_token: float = 0.0
    reads: Reads = Reads.NOTHING
    window: float = inf
    chunk: float = inf
    stride: float = 1.0
    flop_per_pair: float = 0.0
    kv_bytes_per_cached_token: float = 0.0
    kv_bytes_per_token: float = 0.0
    state_bytes_per_sequence: float = 0.0
    message_bytes_per_token: float = 0.0
    ranks: int = 1
    token_ranks: float = 1.0
    n_experts: float = 1.0
    top_k: float = 1.0
    kernels: float = 1.0
    kv_heads: float = 1.0


# What a layer has that costs fixed time beyond its kernels; a profile holds seconds for each.
FEATURES = (
    "layers",
    "qk_norm",
    "latent",
    "latent_8bit",
    "indexer",
    "mixer",
    "experts_16bit",
    "experts_8bit",
    "experts_4bit",
    "experts_mxfp4",
    "quantised_activations",
)

NUMBERS = (
    "count",
    "weight_bytes",
    "flop_per_token",
    "activation_bytes_per_token",
    "quantised_bytes_per_token",
    "window",
    "chunk",
    "stride",
    "flop_per_pair",
    "kv_bytes_per_cached_token",
    "kv_bytes_per_token",
    "state_bytes_per_sequence",
    "message_bytes_per_token",
    "ranks",
    "token_ranks",
    "n_experts",
    "top_k",
    "kernels",
    "kv_heads",
)
