"""TensorRT-LLM: KV pool = free memory fraction x what is free after the engine, its context and its buffers.

Source: cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp; two public logs, both exact given the free memory. The buffers
before that are known from one log only (1.6 GiB on a B200 with Llama-2-70B), hence their range.
Ignores: the PyTorch back end's warm-up estimate.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from calc.accelerator import Accelerator
from calc.engine import Engine
from calc.layout import Layout
from calc.memory.engines.estimates import (
    device_total,
    fitted,
    layers_note,
    logical_bytes_per_token,
    rest_of,
    stage_label,
    weights_estimate,
)
from calc.memory.engines.kv_formats import engine_kv_format
from calc.memory.engines.kv_groups import (
    PrintedTokens,
    StagePool,
    StepLimits,
    charged_in_full,
    group_layers,
    pool_of,
    stage_block_bytes,
)
from calc.memory.engines.kv_layers import CacheRules, count_layers
from calc.memory.engines.ledger import Ledger, Line, LineKind, RankLedger, numbers_of
from calc.memory.engines.nearest import fits
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.shapes import ModelShape, shape_of
from calc.memory.engines.sharding import (
    ShardPlan,
    StageLayers,
    pipeline_stages,
    shard_plan,
    stage_weights,
)
from calc.model import ModelSpec
from calc.provenance import Estimate
from calc.units import GIB
from calc.verdict import Verdict

FREE_FRACTION = 0.90
TOKENS_PER_BLOCK = 32
CONTEXT_BYTES = (0.4 * GIB, 0.5 * GIB, 0.9 * GIB)  # CUDA context and libraries
BUFFER_BYTES = (0.5 * GIB, 1.6 * GIB, 4.0 * GIB)  # execution context, runtime and decoder buffers
FALLBACK_LENGTH = 8192
STEP_TOKENS = 8192  # max_num_tokens


def tensorrt_llm_message(ledger: Ledger) -> str:
    """The engine's own kind of refusal."""
    kv = ledger.kv
    if kv.available_bytes <= 0:
        return "No free memory is left for the KV cache after loading the engine and its buffers."
    return (
        f"The KV cache of {kv.available_bytes / GIB:.2f} GiB holds {kv.tokens:,} tokens, but max_seq_len "
        f"({kv.max_model_len:,}) needs {kv.needed_bytes / GIB:.2f} GiB."
    )


def tensorrt_llm_memory(
    spec: ModelSpec, accelerator: Accelerator, layout: Layout, settings: EngineSettings
) -> Ledger:
    """The ledger without nearest changes. Sliding windows are charged in full."""
    shape = shape_of(spec)
    total = device_total(accelerator, settings)
    plan = shard_plan(layout, quantization=settings.quantization)
    stages = pipeline_stages(shape.n_layers, layout.pp)
    named = (settings.kv_dtype or "auto").lower()
    kv_format = engine_kv_format("bf16" if named == "auto" else named)
    rules = CacheRules(
        tp=plan.attention_tp,
        kv_format=kv_format,
        block_size=settings.block_size or TOKENS_PER_BLOCK,
        token_pool=True,
    )
    fraction = settings.memory_utilization or FREE_FRACTION
    ranks = [_rank(shape, layout, settings, total=total, plan=plan, stage=stage) for stage in stages]
    layers = [
        charged_in_full(count_layers(shape.stage_blocks(stage.first, stage.last), rules)) for stage in stages
    ]
    groups = group_layers(sum(map(Counter, layers), Counter()), padding_ratio=1.5)
    pools = [
        StagePool(
            available_bytes=float(rank.kv.best),
            block_bytes=stage_block_bytes(groups, held),
        )
        for rank, held in zip(ranks, layers, strict=True)
    ]
    max_len = settings.max_model_len or spec.max_positions or FALLBACK_LENGTH
    pool = pool_of(
        groups,
        pools,
        max_model_len=max_len,
        limits=StepLimits(max_batched_tokens=settings.max_batched_tokens or STEP_TOKENS),
        printed=PrintedTokens.GROUP_SHARE,
    )
    order = sorted(range(len(ranks)), key=lambda i: pools[i].available_bytes / max(pools[i].block_bytes, 1))
    reserved = float(sum(p.block_bytes * pool.num_blocks for p in pools) * layout.tp * layout.dp)
    ledger = Ledger(
        engine=Engine.TENSORRT_LLM,
        version=settings.version or "newest",
        ranks=tuple(ranks[i] for i in order),
        kv=numbers_of(
            pool,
            logical_bytes=logical_bytes_per_token(spec, kv_format),
            reserved_bytes=reserved,
            max_model_len=max_len,
        ),
        n_layers=shape.n_layers,
        verdict=Verdict(fits=True),
        assumptions=(
            f"The cache takes {fraction:.0%} of what is free after loading.",
            "Sliding windows are charged in full.",
        ),
    )
    return replace(ledger, verdict=Verdict(fits=fits(ledger)))


def _rank(
    shape: ModelShape,
    layout: Layout,
    settings: EngineSettings,
    *,
    total: Estimate,
    plan: ShardPlan,
    stage: StageLayers,
) -> RankLedger:
    """One GPU of a stage; the pool is a share of what is free after weights, context and buffers."""
    weights = weights_estimate(shape, plan, stage_weights(shape, stage, plan).total)
    context, buffers = fitted(CONTEXT_BYTES), fitted(BUFFER_BYTES)
    free = rest_of(total, [context, weights, buffers])
    if settings.free_memory_bytes is not None:
        free = Estimate.exactly(float(settings.free_memory_bytes))
    share: float | None = settings.memory_utilization or FREE_FRACTION
    kv = free.scaled(share)
    if settings.available_kv_bytes is not None or settings.free_memory_bytes is not None:
        share = None
    if settings.available_kv_bytes is not None:
        kv = Estimate.exactly(float(settings.available_kv_bytes))
    return RankLedger(
        label=stage_label(stage),
        stage=stage.index,
        stages=stage.of,
        gpus=layout.tp * layout.dp,
        total=total,
        budget=total,
        lines=(
            Line(kind=LineKind.WEIGHTS, bytes=weights, note=layers_note(stage)),
            Line(kind=LineKind.NON_TORCH, bytes=context, note="CUDA context and libraries"),
            Line(
                kind=LineKind.ACTIVATION,
                bytes=buffers,
                note="execution context, runtime and decoder buffers",
            ),
        ),
        kv=kv,
        left=rest_of(free, [kv]),
        pool_share=share,
    )
