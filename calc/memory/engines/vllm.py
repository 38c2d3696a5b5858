"""vLLM: KV pool = total x utilisation - weights - activation peak - memory outside torch - graph estimate, per GPU.

The rank with the least room binds the pool of all. Rules are keyed by version (`calc.memory.engines.versions`).

Source: vllm/v1/worker/gpu_worker.py, vllm/v1/core/kv_cache_utils.py; errors over public logs in docs/accuracy.md.
Ignores: other processes on the card (they make the engine refuse or fail later; they do not shrink the pool).
"""

from __future__ import annotations

from dataclasses import replace

from calc.accelerator import Accelerator
from calc.engine import Engine
from calc.layout import Layout
from calc.memory.adapters import adapter_bytes_per_gpu
from calc.memory.engines.activation import StepShape, activation_estimate, activation_peak, hidden_elements
from calc.memory.engines.drafters import (
    draft_forward_elements,
    draft_weight_bytes,
    unprofiled_logit_bytes,
    uses_mtp,
)
from calc.memory.engines.estimates import (
    HOST_SHARE_BYTES,
    default_mxfp4_kernel,
    is_bitsandbytes,
    layers_note,
    logical_bytes_per_token,
    rest_of,
    shares_memory,
    stage_label,
    weights_estimate,
)
from calc.memory.engines.kv_groups import StagePool, pool_of, stage_block_bytes
from calc.memory.engines.ledger import Ledger, Line, LineKind, RankLedger, numbers_of
from calc.memory.engines.nearest import fits
from calc.memory.engines.overheads import graph_estimate, graph_numbers, non_torch
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.shapes import ModelShape, shape_of
from calc.memory.engines.sharding import (
    ShardPlan,
    StageLayers,
    expert_format,
    experts_width,
    pipeline_stages,
    shard_plan,
    stage_weights,
)
from calc.memory.engines.versions import LATEST, SAMPLER_SECOND_RUNNER, GraphRule, release
from calc.memory.engines.vllm_start import VllmStart, cache_plan, resolve_start
from calc.model import ModelSpec
from calc.provenance import Estimate, Provenance
from calc.units import GIB
from calc.verdict import Verdict

LEAST_CONTEXT_BYTES = 0.1 * GIB  # the smallest difference of free memory to total in start-up logs
# On a board that shares its memory, free is what the system calls available: an idle system holds at least this much (assumed;
# 7.2 of 121.7 GiB in a public start).
LEAST_HOST_BYTES = 2.0 * GIB
# Of the best estimate: a head may be narrower, or bring an output matrix of its own.
DRAFTER_RANGE = (0.5, 2.0)
CONTEXT_BYTES = 0.5 * GIB  # CUDA context, outside the engine's count
# Experts that run in Triton's fused kernel, whose workspace stays allocated: 16-bit and block-fp8 weights.
WORKSPACE_FORMATS = ("bf16", "fp16", "fp8-block", "fp8", "fp8-channel")


def vllm_message(ledger: Ledger) -> str:
    """The engine's own kind of refusal."""
    kv, rank = ledger.kv, ledger.tightest
    if ledger.start_shortfall_bytes > 0:
        return (
            f"Free memory on device at startup is less than the desired share of it: "
            f"{float(rank.budget.best) / GIB:.2f} of {float(rank.total.best) / GIB:.2f} GiB are asked for, and the CUDA "
            "context (or the host's system, where memory is shared) takes more than the rest. Decrease the memory utilisation."
        )
    if kv.available_bytes <= 0:
        return (
            f"No available memory for the cache blocks: {kv.available_bytes / GIB:.2f} GiB are left for the KV cache. "
            "Try increasing the memory utilisation."
        )
    estimated = (
        f" Based on the available memory, the estimated maximum model length is {kv.longest_length}."
        if kv.longest_length
        else ""
    )
    return (
        f"To serve at least one request with the model's max seq len ({kv.max_model_len}), "
        f"{kv.needed_bytes / GIB:.2f} GiB KV cache is needed, which is larger than the available KV cache memory "
        f"({kv.available_bytes / GIB:.2f} GiB).{estimated}"
    )


def vllm_memory(
    spec: ModelSpec, accelerator: Accelerator, layout: Layout, settings: EngineSettings
) -> Ledger:
    """The ledger without nearest changes: what a search calls for every candidate."""
    shape = shape_of(spec)
    start = resolve_start(shape, accelerator, settings)
    plan = shard_plan(
        layout,
        quantization=settings.quantization,
        mxfp4_kernel=settings.mxfp4_kernel
        or default_mxfp4_kernel(
            accelerator, LATEST if settings.version is None else release(settings.version)
        ),
    )
    stages = pipeline_stages(shape.n_layers, layout.pp)
    cache = cache_plan(shape, layout, stages, start, settings)
    ranks = [
        _rank(shape, accelerator, layout, settings=settings, start=start, plan=plan, stage=stage)
        for stage in stages
    ]
    pools = [
        StagePool(
            available_bytes=float(rank.kv.best),
            block_bytes=stage_block_bytes(cache.groups, layers),
        )
        for rank, layers in zip(ranks, cache.stage_layers, strict=True)
    ]
    pool = pool_of(
        cache.groups,
        pools,
        max_model_len=start.max_model_len,
        limits=cache.limits,
        printed=start.rules.printed,
    )
    order = sorted(range(len(ranks)), key=lambda i: _room(pools[i]))
    ledger = Ledger(
        engine=Engine.VLLM,
        version=settings.version or "newest",
        ranks=tuple(ranks[i] for i in order),
        kv=numbers_of(
            pool,
            logical_bytes=logical_bytes_per_token(spec, start.kv_format),
            reserved_bytes=float(sum(p.block_bytes * pool.num_blocks for p in pools) * layout.tp * layout.dp),
            max_model_len=start.max_model_len,
        ),
        n_layers=shape.n_layers,
        verdict=Verdict(fits=True),
        assumptions=start.assumptions,
        start_shortfall_bytes=_start_shortfall(start, settings, accelerator),
    )
    return replace(ledger, verdict=Verdict(fits=fits(ledger)))


def _start_shortfall(start: VllmStart, settings: EngineSettings, accelerator: Accelerator) -> float:
    """Bytes that V1 asks for at start and cannot find free, were the card otherwise empty; 0 where it starts."""
    if start.rules.legacy or settings.available_kv_bytes is not None:
        return 0.0
    held = LEAST_HOST_BYTES if shares_memory(accelerator) else LEAST_CONTEXT_BYTES
    return max(0.0, (start.utilization - 1.0) * float(start.total.best) + held)


def _room(stage: StagePool) -> float:
    """Blocks that a stage has room for, unrounded."""
    return stage.available_bytes / stage.block_bytes if stage.block_bytes else float("inf")


def _rank(
    shape: ModelShape,
    accelerator: Accelerator,
    layout: Layout,
    *,
    settings: EngineSettings,
    start: VllmStart,
    plan: ShardPlan,
    stage: StageLayers,
) -> RankLedger:
    lines = [
        _weights_line(shape, settings, plan, stage),
        _activation_line(shape, layout, settings=settings, start=start, plan=plan, stage=stage),
        Line(
            kind=LineKind.NON_TORCH,
            bytes=non_torch(start.rules.non_torch_era, accelerator, layout),
            note="communication and library buffers outside torch",
        ),
    ]
    others = (
        _adapters_line(shape, settings, plan, stage),
        _drafts_line(shape, settings, start) if stage.is_last else None,
        _graph_line(shape, layout, settings, start, stage),
    )
    lines += [line for line in others if line is not None]
    budget = start.total.scaled(start.utilization)
    kv = rest_of(budget, [line.bytes for line in lines if line.counted])
    if shares_memory(accelerator):
        # Memory outside torch is measured as the change of what the whole system has available: other processes, the file cache
        # and the heap of a compilation move it either way (public logs: 7 GiB less to 8 GiB more than on a card of its own).
        kv = replace(kv, high=float(kv.high) + HOST_SHARE_BYTES)
    if settings.available_kv_bytes is not None:  # `--kv-cache-memory-bytes` replaces the whole computation
        kv = Estimate.exactly(float(settings.available_kv_bytes))
    left = rest_of(
        start.total,
        [budget, *(line.bytes for line in lines if not line.counted), Estimate.exactly(CONTEXT_BYTES)],
    )
    return RankLedger(
        label=stage_label(stage),
        stage=stage.index,
        stages=stage.of,
        gpus=layout.tp * layout.dp,
        total=start.total,
        budget=budget,
        lines=tuple(lines),
        kv=kv,
        left=left,
        pool_share=1.0 if settings.available_kv_bytes is None else None,
    )


def _weights_line(shape: ModelShape, settings: EngineSettings, plan: ShardPlan, stage: StageLayers) -> Line:
    """What loading leaves on the rank; a drafter stands on the last stage."""
    weights = stage_weights(shape, stage, plan, with_mtp=uses_mtp(shape, settings))
    drafter = draft_weight_bytes(shape, settings, plan) if stage.is_last else 0.0
    return Line(
        kind=LineKind.WEIGHTS,
        bytes=_with_drafter(weights_estimate(shape, plan, weights.total), drafter),
        note=_weights_note(stage, weights.rotary, weights.load_peak, drafter),
    )


def _activation_line(
    shape: ModelShape,
    layout: Layout,
    *,
    settings: EngineSettings,
    start: VllmStart,
    plan: ShardPlan,
    stage: StageLayers,
) -> Line:
    """Peak of the profiled step; as low as the second model runner's lighter sampler where that one may have run it."""
    step = _profiled_step(shape, layout, settings=settings, start=start, plan=plan, stage=stage)
    peak = activation_peak(shape, step, start.rules)
    least = None
    if _second_runner(shape, start):
        lighter = replace(start.rules, sampler_bytes=SAMPLER_SECOND_RUNNER)
        least = activation_peak(shape, step, lighter).total
    return Line(
        kind=LineKind.ACTIVATION,
        bytes=activation_estimate(
            peak, has_vision=shape.vision is not None, defaulted=start.batch_assumed, least=least
        ),
        note=f"dummy step of {start.tokens:,} tokens and {start.sequences:,} sequences",
        formula="activation_peak_bytes",
        inputs=peak.inputs,
    )


def _adapters_line(
    shape: ModelShape, settings: EngineSettings, plan: ShardPlan, stage: StageLayers
) -> Line | None:
    """Buffers that the engine makes while the model loads, whether or not an adapter is there."""
    adapters = adapter_bytes_per_gpu(
        shape.spec, adapters=settings.adapters, rank=settings.adapter_rank, tp=plan.attention_tp
    )
    if not adapters:
        return None
    share = (stage.last - stage.first) / shape.n_layers
    return Line(
        kind=LineKind.ADAPTERS,
        bytes=Estimate.exactly(share * adapters),
        note=f"buffers for {settings.adapters} at a time, up to rank {settings.adapter_rank}",
    )


def _drafts_line(shape: ModelShape, settings: EngineSettings, start: VllmStart) -> Line | None:
    """Logits of drafted tokens, which the profile does not run and the pool therefore does not make room for."""
    beyond = unprofiled_logit_bytes(shape, sequences=start.sequences, draft_tokens=settings.draft_tokens)
    if not beyond:
        return None
    return Line(
        kind=LineKind.DRAFTS,
        bytes=Estimate(low=0.0, best=beyond, high=beyond, provenance=Provenance.ASSUMED),
        note=f"logits of {settings.draft_tokens} drafts a sequence: the profile runs one, the rest comes out of what is left free",
        counted=False,
    )


def _second_runner(shape: ModelShape, start: VllmStart) -> bool:
    """Whether the second model runner may have made the profile: dense models without recurrent states."""
    return start.rules.second_runner and not (shape.is_moe or shape.recurrent)


def _with_drafter(weights: Estimate, drafter: float) -> Estimate:
    """Weights and a drafter's: heads differ in width and in what they share with the target."""
    if not drafter:
        return weights
    low, high = DRAFTER_RANGE
    return Estimate(
        low=float(weights.low) + low * drafter,
        best=float(weights.best) + drafter,
        high=float(weights.high) + high * drafter,
        provenance=Provenance.ASSUMED,
    )


def _profiled_step(
    shape: ModelShape,
    layout: Layout,
    *,
    settings: EngineSettings,
    start: VllmStart,
    plan: ShardPlan,
    stage: StageLayers,
) -> StepShape:
    """The dummy step that this rank runs before the pool is sized."""
    runs_experts = expert_format(shape, plan) in WORKSPACE_FORMATS
    compiled = not (start.rules.legacy or settings.enforce_eager)
    return StepShape(
        tokens=start.tokens,
        sequences=start.sequences,
        tp=layout.tp,
        pp=layout.pp,
        first_stage=stage.is_first,
        last_stage=stage.is_last,
        element_bytes=4 if "fp32" in (shape.spec.dtype, settings.quantization) else 2,
        image_items=settings.image_items,
        experts_on_gpu_width=experts_width(shape, plan) if runs_experts else 0,
        compiled=compiled,
        dequantised_copy=is_bitsandbytes(shape, plan),
        light_sampler=bool(settings.light_sampler),
        verifies_drafts=bool(settings.draft_tokens),
        draft_elements=draft_forward_elements(
            shape,
            settings,
            tp=layout.tp,
            per_hidden=hidden_elements(compiled=compiled),
        )
        if stage.is_last
        else 0.0,
    )


def _graph_line(
    shape: ModelShape,
    layout: Layout,
    settings: EngineSettings,
    start: VllmStart,
    stage: StageLayers,
) -> Line | None:
    if settings.enforce_eager:
        return None
    spread = shape.is_moe and layout.ep > 1 and layout.dp > 1
    numbers = graph_numbers(
        n_layers=stage.last - stage.first,
        max_seqs=start.sequences,
        moe=shape.is_moe,
        expert_parallel=spread,
        sizes=settings.graph_sizes,
    )
    estimate = graph_estimate(numbers, spread_over_ranks=spread)
    if _second_runner(shape, start):
        estimate = replace(estimate, low=0.0)
    counted = start.graphs is GraphRule.SUBTRACTED
    note = "estimated and subtracted" if counted else "taken from what the engine leaves free"
    return Line(
        kind=LineKind.GRAPHS,
        bytes=estimate,
        note=note,
        counted=counted,
        formula="graph_bytes",
        inputs=tuple(numbers.items()),
    )


def _weights_note(stage: StageLayers, rotary: float, load_peak: float, drafter: float) -> str:
    parts = [layers_note(stage)]
    if drafter:
        parts.append(f"{drafter / GIB:.2f} GiB of the drafter")
    if rotary:
        parts.append(f"{rotary / GIB:.2f} GiB of rotary tables")
    if load_peak:
        parts.append(f"{load_peak / GIB:.2f} GiB that loading leaves in the count")
    return ", ".join(parts)
