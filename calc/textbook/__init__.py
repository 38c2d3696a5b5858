"""Textbook fidelity: serving an LLM as closed forms over a model's totals.

A decode step reads every weight once and every cached token of every running sequence once, and does 2 FLOP per
parameter and sequence; a prefill does 2 FLOP per parameter and prompt token. Nothing else takes time. All functions
broadcast over arrays. They answer "why" and "about how much"; `calc.step` answers "how much".
"""

from calc.textbook.sizing import binding_limit, decode_gpus, gpus_to_buy, prefill_gpus
from calc.textbook.storage import (
    LlamaParameters,
    TensorParallelShare,
    cache_bytes,
    cached_bytes_per_token,
    kv_bytes_per_token,
    llama_parameters,
    sequence_kv_bytes,
    sequences_paged,
    sequences_reserved,
    tensor_parallel_share,
    tokens_that_fit,
    weight_bytes,
)
from calc.textbook.timing import (
    FLOP_PER_PARAMETER,
    EndToEnd,
    decode_compute_s,
    decode_memory_s,
    decode_step_s,
    e2e_s,
    largest_batch,
    prefill_flop,
    prefill_s,
    step_bytes,
    tokens_per_s,
    verify_step_s,
)

__all__ = [
    "FLOP_PER_PARAMETER",
    "EndToEnd",
    "LlamaParameters",
    "TensorParallelShare",
    "binding_limit",
    "cache_bytes",
    "cached_bytes_per_token",
    "decode_compute_s",
    "decode_gpus",
    "decode_memory_s",
    "decode_step_s",
    "e2e_s",
    "gpus_to_buy",
    "kv_bytes_per_token",
    "largest_batch",
    "llama_parameters",
    "prefill_flop",
    "prefill_gpus",
    "prefill_s",
    "sequence_kv_bytes",
    "sequences_paged",
    "sequences_reserved",
    "step_bytes",
    "tensor_parallel_share",
    "tokens_per_s",
    "tokens_that_fit",
    "verify_step_s",
    "weight_bytes",
]
