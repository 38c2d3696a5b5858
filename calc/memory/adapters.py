"""Memory of LoRA adapters that stay loaded beside one base model."""

from __future__ import annotations

from calc.errors import InputError
from calc.model import ModelSpec, Part, Split, Weight

ADAPTED_PARTS = (Part.ATTENTION, Part.MIXER, Part.MLP, Part.SHARED_EXPERTS)
"""Matrices that engines adapt by default: attention and dense feed-forward; routed experts are left alone."""
ADAPTER_BYTES = 2  # adapters are kept in 16 bit whatever the base is stored in
HIGHEST_RANK = 512  # vLLM's largest --max-lora-rank


def adapter_bytes_per_gpu(spec: ModelSpec, *, adapters: int, rank: int, tp: int = 1) -> int:
    """Bytes on one GPU of `adapters` adapters of rank `rank` on every adapted matrix of the decoder.

    A matrix (out, in) gets A of (rank, in) and B of (out, rank). Tensor parallelism splits the side that the base splits
    and keeps the other whole, as vLLM and SGLang do unless told to shard both.

    Source: Hu et al. 2021 (arXiv 2106.09685), section 4.1; vLLM's documentation of --fully-sharded-loras.
    Ignores: adapters on embeddings, heads and routed experts, and the copies that wait in host memory.
    """
    if adapters < 0 or not 0 <= rank <= HIGHEST_RANK:
        raise InputError(
            "adapter_rank", rank, f"adapters are counted from 0, ranks go from 1 to {HIGHEST_RANK}"
        )
    if not adapters:
        return 0
    sides = sum(
        count * _adapted_sides(weight, tp)
        for count, sublayer in spec.decoder_sublayers()
        for weight in sublayer.weights
        if weight.part in ADAPTED_PARTS and len(weight.shape) == 2 and not weight.buffer
    )
    return sides * rank * adapters * ADAPTER_BYTES


def _adapted_sides(weight: Weight, tp: int) -> int:
    """Width of A's inputs and B's outputs on one GPU."""
    out, into = weight.shape
    a = into // tp if weight.split is Split.ROW else into
    b = out // tp if weight.split in {Split.COLUMN, Split.KV_HEADS} else out
    return a + b
