"""Weights on one GPU: which layers a stage holds, how tensors are fused and divided, and what the allocator makes of them.

    weights = sum over loaded tensors of allocated(bytes) + rotary tables + load peak

Engines fuse projections that read the same input (q, k, v; gate and up), so the sums run over fused tensors; each one is
rounded up by the allocator, which is worth up to 0.4% on small models.

Source: vLLM's parallel linear layers and weight loaders; torch's caching allocator; checked on 16-bit start-up logs.
Ignores: LoRA adapters, custom all-reduce buffers (counted as non-torch memory).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from calc.errors import InputError
from calc.layout import Layout
from calc.memory.engines.shapes import ModelShape
from calc.model import (
    Attention,
    Block,
    CompressedAttention,
    LatentAttention,
    ModelSpec,
    Moe,
    Part,
    Role,
    Split,
    Sublayer,
    Weight,
)
from calc.quantization import FORMATS, StoredFormat, format_after
from calc.units import GIB, MIB

VOCAB_PADDING = 64  # vLLM pads the vocabulary to a multiple of this before dividing it
SMALL_ROUNDING = 512  # torch: every block is a multiple of this
LARGE_SEGMENT = 10 * MIB  # torch: from here on a tensor gets segments of its own,
SEGMENT_ROUNDING = 2 * MIB  # rounded up to this,
SPLIT_REMAINDER = 1 * MIB  # and the rest is given back only above this

# Rotary share of the head, where the family rotates only a part of it (the models' configs).
PARTIAL_ROTARY = {
    "qwen3_5": 0.25,
    "qwen3_5_moe": 0.25,
    "qwen3_next": 0.25,
    "glm4": 0.5,
    "glm4_moe": 0.5,
    "chatglm": 0.5,
    "phi": 0.4,
    "gpt_neox": 0.25,
    "minimax_m2": 0.5,
}
TWO_ROTARY_TABLES = ("gemma3", "gemma3_text", "gemma4", "gemma4_text")
NO_ROTARY = ("opt", "gpt2", "mpt", "gpt_bigcode", "bloom", "falcon_mamba", "mamba", "mamba2", "nemotron_h")

# Memory that exists only while weights load but stays in the engine's count (fitted; docs/accuracy.md lists the cases).
GEMMA3_LOAD_PEAK = 0.35 * GIB  # multimodal Gemma 3, all sizes: 0.2 to 0.45
MXFP4_HIDDEN_PADDING = 256  # experts' hidden width is padded to this,
MXFP4_WIDTH_PADDING = 128  # and in the Marlin kernel their own width to this
REPACKED_BITS = 4.5  # formats up to this many bits are repacked: one more copy of the largest tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """How weights are divided: ranks for attention, for dense layers, for experts, and the what-if format."""

    attention_tp: int
    dense_tp: int
    expert_tp: int
    expert_ep: int
    quantization: str | None = None
    mxfp4_kernel: str = "triton"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayers:
    """Layers of one pipeline stage: from `first` up to, not including, `last`."""

    index: int
    first: int
    last: int
    of: int

    @property
    def is_first(self) -> bool:
        return self.index == 0

    @property
    def is_last(self) -> bool:
        return self.index == self.of - 1


def shard_plan(layout: Layout, *, quantization: str | None = None, mxfp4_kernel: str = "triton") -> ShardPlan:
    """The plan of a layout. Experts follow TP unless `ep` is set; then they are whole and spread over the EP group."""
    ep = max(layout.ep, 1)
    if ep > 1 and ep > layout.tp * layout.dp:
        raise InputError(
            "ep", layout.ep, f"experts can be spread over at most tp x dp = {layout.tp * layout.dp} GPUs"
        )
    return ShardPlan(
        attention_tp=layout.attention_tp,
        dense_tp=layout.tp,
        expert_tp=max(1, layout.tp // ep) if ep > 1 else layout.tp,
        expert_ep=ep,
        quantization=quantization,
        mxfp4_kernel=mxfp4_kernel,
    )


def check_heads(spec: ModelSpec, layout: Layout) -> None:
    """Raises `InputError` where the GPUs of a tensor-parallel group cannot share the query heads evenly.

    Source: vLLM's ModelConfig.verify_with_parallel_config; SGLang and TensorRT-LLM assert the same. llama.cpp splits by
    layers or rows and has no such rule.
    """
    tp = layout.attention_tp
    for _, sublayer in spec.decoder_sublayers():
        if isinstance(sublayer, Attention | LatentAttention) and sublayer.n_heads % tp:
            heads = sublayer.n_heads
            fitting = ", ".join(str(degree) for degree in range(1, min(heads, 64) + 1) if heads % degree == 0)
            raise InputError(
                "tp",
                layout.tp,
                f"{tp} GPUs cannot share the model's {heads} query heads evenly",
                next_step=f"Degrees that can: {fitting}.",
            )


def pipeline_stages(n_layers: int, pp: int) -> tuple[StageLayers, ...]:
    """Layers of each stage: equal shares, the remainder to the stages before the last one (vLLM's rule)."""
    if pp > n_layers:
        raise InputError("pp", pp, f"the model has {n_layers} layers, fewer than stages")
    shares = [n_layers // pp] * pp
    for i in range(n_layers % pp):
        shares[-(i + 2) if pp > 1 else 0] += 1
    stages: list[StageLayers] = []
    first = 0
    for index, share in enumerate(shares):
        stages.append(StageLayers(index=index, first=first, last=first + share, of=pp))
        first += share
    return tuple(stages)


def allocated(size: float) -> int:
    """Bytes that torch's caching allocator counts for a tensor of `size` bytes."""
    rounded = -(-int(size) // SMALL_ROUNDING) * SMALL_ROUNDING
    if rounded < LARGE_SEGMENT:
        return rounded
    segment = -(-rounded // SEGMENT_ROUNDING) * SEGMENT_ROUNDING
    return segment if segment - rounded <= SPLIT_REMAINDER else rounded


@lru_cache(maxsize=65536)
def local_shape(shape: tuple[int, ...], split: Split, tp: int, ep: int, kv_heads: int) -> tuple[int, ...]:
    """The part of a weight that one rank holds; a made-up model's one tensor is divided like a matrix. `kv_heads`: KV heads of the layer, for KV_HEADS splits."""
    first, rest = (shape[0], shape[1:]) if shape else (1, ())
    local = shape
    if split is Split.EXPERT:
        width = (-(-rest[0] // tp), *rest[1:]) if len(rest) > 1 else rest
        local = (-(-first // ep), *width)
    elif split is Split.VOCAB:
        padded = -(-first // VOCAB_PADDING) * VOCAB_PADDING
        local = (-(-padded // tp), *rest)
    elif split is Split.KV_HEADS and kv_heads and first % kv_heads == 0:
        local = (first // kv_heads * max(1, -(-kv_heads // tp)), *rest)
    elif split is Split.ROW and rest:
        local = (*shape[:-1], -(-shape[-1] // tp))
    elif split is not Split.REPLICATED:
        local = (-(-first // tp), *rest)
    return local


def tensor_bytes(form: StoredFormat, shape: tuple[int, ...], kernel: str, name: str = "") -> float:
    """Bytes of a local tensor as the engine keeps it.

    MXFP4 experts are padded for their kernel; nested bitsandbytes scales are unpacked to one fp32 per 64 elements.
    """
    if form.name == "bnb-4bit":
        return FORMATS["bnb-4bit-single"].tensor_bytes(shape)
    if form.name != "mxfp4" or len(shape) < 3:
        return form.tensor_bytes(shape)
    down, halves = "down" in name, 2 if "gate_up" in name else 1
    experts, n_out, n_in = shape[-3], shape[-2], shape[-1]
    if kernel == "triton":
        # Values are padded along the hidden width, scales are not.
        hidden = n_out if down else n_in
        padded = -(-hidden // MXFP4_HIDDEN_PADDING) * MXFP4_HIDDEN_PADDING
        return experts * n_out * n_in * (0.5 * padded / hidden + 1 / 32)
    hidden, width = (n_out, n_in) if down else (n_in, n_out)
    hidden = -(-hidden // MXFP4_HIDDEN_PADDING) * MXFP4_HIDDEN_PADDING
    # Gate and up are padded each, where they are stored as one tensor of twice an expert's width.
    width = halves * -(-(width // halves) // MXFP4_WIDTH_PADDING) * MXFP4_WIDTH_PADDING
    return experts * hidden * width * (0.5 + 1 / 32)


def stored_in(weight: Weight, role: Role, quantization: str | None) -> StoredFormat:
    """The format of one weight, as published or under a what-if."""
    return FORMATS[weight.stored if quantization is None else format_after(weight, role, quantization)]


def fused_bytes(
    weights: tuple[Weight, ...], role: Role, plan: ShardPlan, tp: int, kv_heads: int
) -> list[float]:
    """Bytes of the tensors that one sublayer loads on one rank, with projections of equal input fused."""
    fused: dict[tuple[object, ...], float] = {}
    for index, weight in enumerate(weights):
        form = stored_in(weight, role, plan.quantization)
        expert = weight.split is Split.EXPERT
        split = Split.COLUMN if weight.part is Part.UNSTATED else weight.split
        shape = local_shape(
            weight.shape,
            split,
            plan.expert_tp if expert else tp,
            plan.expert_ep if expert else 1,
            kv_heads,
        )
        size = tensor_bytes(form, shape, plan.mxfp4_kernel, weight.name)
        together = weight.split in (Split.COLUMN, Split.KV_HEADS, Split.EXPERT) and len(shape) >= 2
        key = (weight.part, weight.shape[-1], form.name, expert) if together else (index,)
        fused[key] = fused.get(key, 0.0) + size
    return list(fused.values())


def sublayer_tensors(sublayer: Sublayer, role: Role, plan: ShardPlan) -> list[float]:
    """Bytes of one sublayer's tensors on one rank."""
    kv_heads = sublayer.n_kv_heads if isinstance(sublayer, Attention) else 0
    attention = isinstance(sublayer, Attention | LatentAttention | CompressedAttention)
    tp = plan.attention_tp if attention else plan.dense_tp
    tensors = fused_bytes(sublayer.weights, role, plan, tp, kv_heads)
    if isinstance(sublayer, LatentAttention):
        # The up-projection is kept, and 16-bit copies of its two halves are made for the absorbed form.
        heads = -(-sublayer.n_heads // tp)
        for width in (sublayer.nope_dim, sublayer.value_dim):
            tensors.append(heads * width * sublayer.kv_lora_rank * 2.0)
    return tensors


def block_bytes(block: Block, role: Role, plan: ShardPlan) -> tuple[float, float]:
    """(allocated bytes of one block on one rank, its largest repacked tensor)."""
    if block.shares_weights:
        return 0.0, 0.0
    total, largest = 0.0, 0.0
    for sublayer in block.sublayers:
        sizes = sublayer_tensors(sublayer, role, plan)
        total += sum(map(allocated, sizes))
        if any(
            stored_in(w, role, plan.quantization).bits <= REPACKED_BITS
            for w in sublayer.weights
            if len(w.shape) > 1
        ):
            largest = max([largest, *sizes])
    for weight in block.norms:
        total += allocated(stored_in(weight, role, plan.quantization).tensor_bytes(weight.shape))
    return total, largest


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWeights:
    """Bytes of weights on one rank of a stage: tensors, rotary tables, and the peak that loading leaves in the count."""

    tensors: float
    rotary: float
    load_peak: float

    @property
    def total(self) -> float:
        return self.tensors + self.rotary + self.load_peak


def stage_weights(
    shape: ModelShape, stage: StageLayers, plan: ShardPlan, *, with_mtp: bool = False
) -> StageWeights:
    """Weights of one rank of one stage. Embedding on the first stage, head on the last (tied: on both)."""
    spec = shape.spec
    total, largest = 0.0, 0.0
    for count, block in shape.stage_blocks(stage.first, stage.last):
        size, repacked = block_bytes(block, Role.DECODER, plan)
        total += count * size
        largest = max(largest, repacked)
    if stage.is_first or (stage.is_last and spec.tied):
        total += _plain(spec.embeddings, Role.DECODER, plan)
    if stage.is_last:
        total += _plain(spec.lm_head, Role.DECODER, plan)
        if with_mtp:
            total += sum(count * block_bytes(block, Role.MTP, plan)[0] for count, block in shape.drafts)
    for stack in spec.stacks:
        if stack.role in (Role.MTP, Role.DRAFT):
            continue
        decoder = stack.role is Role.DECODER
        if not decoder or stage.is_last:
            total += _plain(stack.weights, stack.role, plan)
        if not decoder:
            total += sum(run.count * block_bytes(run.block, stack.role, plan)[0] for run in stack.runs)
    repacks = largest if not shape.is_moe else 0.0
    return StageWeights(
        tensors=total, rotary=rotary_bytes(shape, plan), load_peak=repacks + family_load_peak(shape)
    )


def _plain(weights: tuple[Weight, ...], role: Role, plan: ShardPlan) -> float:
    return float(sum(map(allocated, fused_bytes(weights, role, plan, plan.dense_tp, 0))))


def rotary_bytes(shape: ModelShape, plan: ShardPlan) -> float:
    """Bytes of the cosine and sine tables: positions times rotated width in the model's type, once for each table."""
    spec = shape.spec
    if spec.model_type in NO_ROTARY or not spec.max_positions:
        return 0.0
    width = shape.head_dim
    for block in shape.blocks:
        for sublayer in block.sublayers:
            if isinstance(sublayer, LatentAttention):
                width = sublayer.rope_dim
    size = 4.0 if "fp32" in (spec.dtype, plan.quantization) else 2.0
    tables = 2 if spec.model_type in TWO_ROTARY_TABLES else 1
    return tables * spec.max_positions * width * PARTIAL_ROTARY.get(spec.model_type, 1.0) * size


def family_load_peak(shape: ModelShape) -> float:
    """Memory above the tensors that loading leaves in the engine's count, for the families where it was seen."""
    model_type = shape.spec.model_type
    if model_type == "gemma3" and shape.vision is not None:
        return GEMMA3_LOAD_PEAK
    return 0.0


def experts_width(shape: ModelShape, plan: ShardPlan) -> int:
    """Width of one expert on one rank."""
    return -(-shape.expert_intermediate // plan.expert_tp) if shape.n_experts else 0


def expert_format(shape: ModelShape, plan: ShardPlan) -> str:
    """The format that routed experts run in; "" for dense models."""
    mixtures = (s for block in shape.blocks for s in block.sublayers if isinstance(s, Moe))
    experts = (weight for moe in mixtures for weight in moe.weights if weight.part is Part.EXPERTS)
    one = next(experts, None)
    return "" if one is None else stored_in(one, Role.DECODER, plan.quantization).name
