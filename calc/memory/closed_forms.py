"""An engine's memory ledger as formulas that can be printed: budget, pool, blocks, sequences, tokens, and what it profiles.

`calc.memory.engines` evaluates the same rules, rank by rank and version by version; tests hold the two together.
"""

from __future__ import annotations

import numpy as np

from calc.arrays import Numbers, floor_count, scalar


def engine_budget_bytes(*, total_bytes: Numbers, memory_share: Numbers) -> Numbers:
    """Bytes that the engine may use of one GPU.

    Source: vLLM gpu_worker.py (gpu-memory-utilization times the runtime's total). Ignores: other processes on the card.
    """
    return total_bytes * memory_share


def kv_pool_bytes(
    *,
    budget_bytes: Numbers,
    rank_weight_bytes: Numbers,
    activation_peak: Numbers,
    non_torch_bytes: Numbers,
    counted_graph_bytes: Numbers,
    other_bytes: Numbers,
    pool_share: Numbers,
) -> Numbers:
    """Bytes of the KV pool of one GPU: the budget, less everything that the engine counts, times what it takes of the rest.

    Source: the engines' start-up code; errors over public logs are on the Accuracy page. Ignores: memory that is taken after
    start (graphs of versions that do not count them come out of what is left free).
    """
    return pool_share * (
        budget_bytes
        - rank_weight_bytes
        - activation_peak
        - non_torch_bytes
        - counted_graph_bytes
        - other_bytes
    )


def pool_blocks(*, pool_bytes: Numbers, block_bytes: Numbers) -> Numbers:
    """Whole blocks that the pool of one GPU holds.

    Source: vLLM kv_cache_utils.py. Ignores: nothing; a begun block is not made.
    """
    return floor_count(np.maximum(pool_bytes, 0.0) / block_bytes)


def reserved_pool_bytes(*, blocks: Numbers, block_bytes: Numbers, gpus: Numbers) -> Numbers:
    """Bytes of whole blocks on all GPUs of a replica.

    Source: definition. Ignores: the part of a pool that is no whole block.
    """
    return blocks * block_bytes * gpus


def pool_sequences(*, blocks: Numbers, blocks_per_sequence: Numbers) -> Numbers:
    """Sequences of the longest length that the pool holds, which the engine logs as maximum concurrency.

    Source: vLLM kv_cache_utils.py. Ignores: shorter sequences, of which more fit.
    """
    return blocks / blocks_per_sequence


def running_sequences(
    *, blocks: Numbers, blocks_per_sequence: Numbers, blocks_while_decoding: Numbers
) -> Numbers:
    """Sequences that run at once where windows give blocks back: one computes its prompt, the others decode.

    Source: vLLM single_type_kv_cache_manager.py (remove_skipped_blocks). Ignores: passes with several prompts, which admit fewer.
    """
    return 1.0 + floor_count((blocks - blocks_per_sequence) / blocks_while_decoding)


def pool_tokens(*, sequences_in_pool: Numbers, longest_tokens_limit: Numbers) -> Numbers:
    """Tokens that the pool holds at the longest length.

    Source: vLLM kv_cache_utils.py (GPU KV cache size). Ignores: versions that print blocks times block size.
    """
    return floor_count(sequences_in_pool * longest_tokens_limit)


def activation_peak_bytes(
    *,
    sampler_bytes: Numbers,
    forward_bytes: Numbers,
    vision_bytes: Numbers,
    workspace_bytes: Numbers,
    kept_bytes: Numbers,
) -> Numbers:
    """Peak of the dummy step that vLLM runs before it sizes the pool: the largest of its three passes, and what stays.

    Source: vLLM profile_run and sampler, constants fitted to public start-up logs. Ignores: LoRA and drafters.
    """
    passes = np.maximum(np.maximum(sampler_bytes, forward_bytes), vision_bytes)
    return scalar(passes + workspace_bytes + kept_bytes)


def graph_bytes(
    *, fixed_bytes: Numbers, captured: Numbers, n_layers: Numbers, bytes_per_capture: Numbers
) -> Numbers:
    """Bytes that vLLM estimates for its CUDA graphs: each captured batch size keeps something per layer.

    Source: fitted to the estimates that vLLM prints. Ignores: pools shared between graphs of one size.
    """
    return fixed_bytes + captured * n_layers * bytes_per_capture
