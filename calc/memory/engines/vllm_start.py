"""vLLM's start-up settings resolved: what the flags say, and the defaults of the version and the card for the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from calc.accelerator import Accelerator
from calc.errors import InputError
from calc.layout import Layout
from calc.memory.engines.drafters import draft_blocks
from calc.memory.engines.estimates import device_total, shares_memory
from calc.memory.engines.kv_formats import EngineKvFormat, engine_kv_format
from calc.memory.engines.kv_groups import (
    CacheGroups,
    CacheLayer,
    StepLimits,
    charged_in_full,
    group_layers,
)
from calc.memory.engines.kv_layers import CacheRules, aligned_rules, count_layers
from calc.memory.engines.overheads import capability
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.shapes import ModelShape
from calc.memory.engines.sharding import StageLayers, shard_plan
from calc.memory.engines.versions import GraphRule, VersionRules, rules_of
from calc.model import Attention
from calc.provenance import Estimate
from calc.units import GIB

LARGE_CARD_BYTES = 70 * GIB  # from here on (A100 apart) vLLM V1 defaults to larger batches
CHUNKS_ABOVE = 32_768  # V0 turned chunked prefill on above this length
CHUNKING_CAPABILITY = 8.0  # ... on cards from Ampere on
LEGACY_TOKENS = 2048
LEGACY_SEQUENCES = 256
FALLBACK_LENGTH = 8192  # a model whose config states no longest length


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmStart:
    """Everything that is fixed before memory is counted."""

    rules: VersionRules
    utilization: float
    max_model_len: int
    tokens: int
    sequences: int
    batch_assumed: bool
    kv_format: EngineKvFormat
    hybrid_cache: bool
    graphs: GraphRule
    total: Estimate
    assumptions: tuple[str, ...]


def resolve_start(shape: ModelShape, accelerator: Accelerator, settings: EngineSettings) -> VllmStart:
    """The start-up of one engine, defaults filled in; each assumption in words."""
    rules = rules_of(settings.version, legacy=settings.legacy_engine)
    assumptions: list[str] = []
    total = device_total(accelerator, settings)
    max_len = settings.max_model_len or shape.spec.max_positions
    if max_len is None:
        max_len = FALLBACK_LENGTH
        assumptions.append(f"The config states no longest length; {FALLBACK_LENGTH:,} tokens are assumed.")
    tokens, sequences = _batch(
        rules,
        accelerator,
        total_bytes=float(total.best),
        max_len=max_len,
        shape=shape,
        settings=settings,
    )
    if settings.max_batched_tokens is None or settings.max_seqs is None:
        front = "the offline class" if settings.offline else "the API server"
        assumptions.append(
            f"Batch limits are the defaults of {front}: {tokens:,} tokens and {sequences:,} sequences a step."
        )
    if settings.memory_utilization is None:
        assumptions.append(f"Memory utilisation is this version's default, {rules.utilization:.2f}.")
    graphs = rules.graphs
    if settings.subtract_graphs is not None:
        graphs = GraphRule.SUBTRACTED if settings.subtract_graphs else GraphRule.PRINTED
    if settings.enforce_eager:
        graphs = GraphRule.NONE
    if shares_memory(accelerator):
        assumptions.append(
            "Memory is shared with the host: what the system and its file cache hold is not known."
        )
    hybrid = settings.hybrid_cache
    if hybrid is None:
        hybrid = rules.hybrid_cache and shape.spec.model_type not in rules.in_full
    auto = "fp32" if shape.spec.dtype == "fp32" else "bf16"
    if shape.compressed:
        auto = "fp8_ds_mla"  # the only layout of these models
    named = (settings.kv_dtype or "auto").lower()
    return VllmStart(
        rules=rules,
        utilization=settings.memory_utilization or rules.utilization,
        max_model_len=max_len,
        tokens=tokens,
        sequences=sequences,
        batch_assumed=settings.max_batched_tokens is None and settings.max_seqs is None,
        kv_format=engine_kv_format(auto if named == "auto" else named),
        hybrid_cache=hybrid,
        graphs=graphs,
        total=total,
        assumptions=tuple(assumptions),
    )


def _batch(
    rules: VersionRules,
    accelerator: Accelerator,
    *,
    total_bytes: float,
    max_len: int,
    shape: ModelShape,
    settings: EngineSettings,
) -> tuple[int, int]:
    """(tokens, sequences) of a step: as flagged, or the version's defaults for the card."""
    if rules.legacy:
        chunked = settings.chunked_prefill
        if chunked is None:
            older = 0.0 < capability(accelerator) < CHUNKING_CAPABILITY
            chunked = max_len > CHUNKS_ABOVE and shape.vision is None and not older
        tokens = LEGACY_TOKENS if chunked else max(LEGACY_TOKENS, max_len)
        sequences = LEGACY_SEQUENCES
    else:
        # Where the driver reports no memory (boards that share the host's), the engine takes the small cards' defaults.
        told = total_bytes if not shares_memory(accelerator) else 0.0
        large = told >= LARGE_CARD_BYTES and "A100" not in accelerator.name
        served, offline, sequences = (8192, 16384, 1024) if large else (2048, 8192, 256)
        tokens = offline if settings.offline else served
        if settings.chunked_prefill is False:
            tokens = max(tokens, max_len)
    return settings.max_batched_tokens or tokens, settings.max_seqs or sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """Cache groups of the whole model, and the cache layers of each stage (on one GPU)."""

    groups: CacheGroups
    stage_layers: tuple[Counter[CacheLayer], ...]
    limits: StepLimits


def _check_context_parallel(shape: ModelShape, layout: Layout, degree: int) -> None:
    """Refuse a decode context parallelism that vLLM refuses at start (`ParallelConfig`, and `ModelConfig` for heads)."""
    if degree == 1:
        return
    if layout.tp % degree:
        raise InputError("decode_context_parallel", degree, f"it must divide TP{layout.tp}")
    heads = max(
        (s.n_kv_heads for b in shape.blocks for s in b.sublayers if isinstance(s, Attention)), default=0
    )
    if heads and degree * heads > layout.tp:
        raise InputError(
            "decode_context_parallel",
            degree,
            f"every KV head must be on as many GPUs: {heads} heads allow {layout.tp // heads} at TP{layout.tp}",
            next_step=f"Take TP{degree * heads} or more, or leave it at 1.",
        )


def cache_plan(
    shape: ModelShape,
    layout: Layout,
    stages: tuple[StageLayers, ...],
    start: VllmStart,
    settings: EngineSettings,
) -> CachePlan:
    """Which pages every layer has, grouped as the version groups them."""
    _check_context_parallel(shape, layout, settings.decode_context_parallel)
    rules = CacheRules(
        tp=shard_plan(layout).attention_tp,
        kv_format=start.kv_format,
        block_size=settings.block_size,
        latent_cache=start.rules.latent_cache,
        draft_tokens=settings.draft_tokens,
        state_dtype=settings.state_dtype,
    )
    recurrent = shape.recurrent
    caching = settings.prefix_caching
    if caching is None:
        caching = start.rules.hybrid_prefix_caching if recurrent else True
    if recurrent:
        rules = replace(
            aligned_rules(shape.blocks, rules), state_pages=(2 if caching else 1) + settings.draft_tokens
        )
    drafts = draft_blocks(shape, settings)
    counted: list[Counter[CacheLayer]] = []
    for stage in stages:
        blocks = shape.stage_blocks(stage.first, stage.last)
        if stage.is_last:
            blocks = [*blocks, *drafts]
        counted.append(count_layers(blocks, rules))
    if not start.hybrid_cache:
        counted = [Counter(charged_in_full(layers)) for layers in counted]
    model: Counter[CacheLayer] = Counter()
    for layers in counted:
        model.update(layers)
    return CachePlan(
        groups=group_layers(model, padding_ratio=start.rules.padding_ratio),
        stage_layers=tuple(counted),
        limits=StepLimits(
            max_batched_tokens=start.tokens,
            context_parallel=settings.decode_context_parallel,
            encoder_tokens=settings.encoder_tokens,
        ),
    )
