"""Memory that an engine sets aside at start for low-rank adapters (LoRA), whether or not any is loaded.

vLLM keeps two stacked buffers per projection in 16 bit: A, (adapters, rank, inputs), and B, (adapters, outputs, rank). Along
with the projection itself, B is divided over the ranks where outputs are, A where inputs are; the other one is held whole.

Source: vllm/lora/layers (column_parallel_linear.py, row_parallel_linear.py: `create_lora_weights`), `--fully-sharded-loras`
off as by default. The buffers are made while the model loads, so they are in what the log calls the model's memory.
Ignores: adapters of routed experts, of the embedding and of the output head, which few adapters touch.
"""

from __future__ import annotations

from calc.engine import Engine
from calc.errors import InputError
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.shapes import ModelShape
from calc.memory.engines.sharding import ShardPlan, StageLayers, allocated, local_shape
from calc.model import Attention, LatentAttention, Mlp, Part, Split, Sublayer, Weight

ADAPTER_ELEMENT_BYTES = 2
LONGEST_KERNEL = (
    8  # the last axis of a depthwise convolution is at most this long; such weights take no adapter
)


def check_adapters(settings: EngineSettings) -> None:
    """Raises `InputError` for adapters under an engine whose buffers are not known."""
    if settings.max_loras and settings.engine is not Engine.VLLM:
        raise InputError(
            "max_loras",
            settings.max_loras,
            f"what {settings.engine} sets aside for adapters is not known",
            next_step="vLLM's buffers are; or leave adapters out and keep memory free for them.",
        )


def adapter_bytes(
    shape: ModelShape, stage: StageLayers, plan: ShardPlan, *, adapters: int, rank: int
) -> float:
    """Bytes of the buffers on one GPU of a stage, as torch's allocator counts them."""
    if not adapters:
        return 0.0
    return float(
        sum(
            count * _sublayer_bytes(sublayer, plan, adapters, rank)
            for count, block in shape.stage_blocks(stage.first, stage.last)
            for sublayer in block.sublayers
        )
    )


def _sublayer_bytes(sublayer: Sublayer, plan: ShardPlan, adapters: int, rank: int) -> float:
    if not isinstance(sublayer, Attention | LatentAttention | Mlp):
        return 0.0
    kv_heads = sublayer.n_kv_heads if isinstance(sublayer, Attention) else 0
    tp = plan.dense_tp if isinstance(sublayer, Mlp) else plan.attention_tp
    return sum(
        allocated(ADAPTER_ELEMENT_BYTES * adapters * rank * width)
        for weight in sublayer.weights
        if _takes_adapter(weight)
        for width in _widths(weight, tp, kv_heads)
    )


def _takes_adapter(weight: Weight) -> bool:
    return (
        len(weight.shape) == 2
        and weight.shape[-1] > LONGEST_KERNEL
        and weight.part in (Part.ATTENTION, Part.MLP)
    )


def _widths(weight: Weight, tp: int, kv_heads: int) -> tuple[int, int]:
    """(inputs of A, outputs of B) on one rank."""
    outputs, inputs = local_shape(weight.shape, weight.split, tp, 1, kv_heads)
    if weight.split is Split.ROW:
        return inputs, weight.shape[0]
    return weight.shape[1], outputs
