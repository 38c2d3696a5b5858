"""SGLang: tokens = (free after loading - free before loading x (1 - static fraction)) / bytes per token.

There is no profiling pass: activations and CUDA graphs live in what the static fraction leaves. Sliding layers have a pool
of their own (a share of the full pool's tokens, not the window); recurrent states take their share first.

Source: python/sglang/srt/model_executor/model_runner.py, mem_cache/ and server_args.py of 2025 and 2026; checked on public
start-up logs (docs/accuracy.md).
Ignores: speculative decoding's intermediate states and draft pools; LoRA.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.accelerator import Accelerator
from calc.engine import Engine
from calc.layout import Layout
from calc.memory.engines.estimates import (
    default_mxfp4_kernel,
    device_total,
    fitted,
    layers_note,
    logical_bytes_per_token,
    rest_of,
    shares_memory,
    stage_label,
    weights_estimate,
)
from calc.memory.engines.kv_formats import EngineKvFormat, engine_kv_format
from calc.memory.engines.kv_groups import CacheKind
from calc.memory.engines.kv_layers import CacheRules, count_layers
from calc.memory.engines.ledger import KvNumbers, Ledger, Line, LineKind, RankLedger, Room
from calc.memory.engines.nearest import fits
from calc.memory.engines.overheads import GRAPH_FIXED_BYTES, GRAPH_RANGE
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.sglang_defaults import card_defaults, default_static_fraction, sglang_version
from calc.memory.engines.shapes import ModelShape, shape_of
from calc.memory.engines.sharding import (
    ShardPlan,
    StageLayers,
    pipeline_stages,
    shard_plan,
    stage_weights,
)
from calc.memory.flag_scope import CHUNK_FLAG, flag_value
from calc.model import CompressedAttention, LatentAttention, Mixer, ModelSpec
from calc.provenance import Estimate, Provenance
from calc.units import GIB, MIB
from calc.verdict import Verdict

# Free memory before loading: the runtime's total less the CUDA context and what a desktop holds (logs: 0.4 to 0.9 GiB).
CONTEXT_BYTES = (0.4 * GIB, 0.6 * GIB, 0.9 * GIB)
# A board that shares its memory with the host: what the system holds as well (two logs of one kind of board).
HOST_BYTES = (4 * GIB, 8 * GIB, 12 * GIB)
# What loading takes beyond the weights: allocator slack on one GPU; communication buffers from TP 4 on.
LOADING_BYTES = {1: (0.1, 0.13, 0.2), 2: (0.1, 0.6, 1.4), 4: (1.3, 1.45, 1.6)}
GRAPH_BYTES_PER_SIZE = 27 * MIB  # 0.09 to 0.11 GiB for 4 sizes, 1.44 GiB for 52 sizes
FALLBACK_LENGTH = 8192
WINDOW_POOL_RATIO = 0.8  # swa_full_tokens_ratio
COMPRESSED_POOL_RATIO = 0.1  # ... of DeepSeek-V4,
COMPRESSED_REQUESTS = 256  # and how many of its requests run at once
# Slots of recurrent state per running request where a cache of prefixes is kept: its own, the matched prefix's, one to donate,
# and two more for passes that are scheduled ahead (kv_cache_configurator.py; a public start has 360 slots and 72 requests).
SLOTS_PER_REQUEST = 5


def sglang_message(ledger: Ledger) -> str:
    """The engine's own kind of refusal."""
    kv = ledger.kv
    if kv.available_bytes <= 0:
        return (
            "Not enough memory. Please try to increase --mem-fraction-static. "
            f"{kv.available_bytes / GIB:.2f} GiB are left for the KV cache."
        )
    return (
        f"The pool holds {kv.tokens:,} tokens; a request of {kv.max_model_len:,} tokens "
        f"({kv.needed_bytes / GIB:.2f} GiB) would be refused. The longest that fits is {kv.longest_length:,}."
    )


def sglang_memory(
    spec: ModelSpec, accelerator: Accelerator, layout: Layout, settings: EngineSettings
) -> Ledger:
    """The ledger without nearest changes."""
    shape = shape_of(spec)
    start = _start(shape, accelerator, layout, settings)
    ratio = settings.window_pool_ratio or (COMPRESSED_POOL_RATIO if shape.compressed else WINDOW_POOL_RATIO)
    plan = shard_plan(
        layout,
        quantization=settings.quantization,
        mxfp4_kernel=settings.mxfp4_kernel or default_mxfp4_kernel(accelerator),
    )
    rules = CacheRules(
        tp=plan.attention_tp,
        kv_format=start.kv_format,
        block_size=1,
        token_pool=True,
        window_pool=True,
        state_dtype=settings.state_dtype,
    )
    ranks: list[RankLedger] = []
    pools: list[TokenPool] = []
    for stage in pipeline_stages(shape.n_layers, layout.pp):
        cells = _cells(shape, stage, rules)
        rank, slots = _rank(shape, layout, settings, start=start, plan=plan, stage=stage, cells=cells)
        ranks.append(rank)
        pools.append(
            TokenPool(
                available_bytes=float(rank.kv.best),
                cells=cells,
                slots=slots,
                window_ratio=ratio,
                page=settings.block_size or 1,
            )
        )
    # A stage of recurrent layers alone keeps nothing for each token: it does not bind where another does.
    order = sorted(range(len(ranks)), key=lambda i: (not pools[i].bytes_per_token, pools[i].tokens))
    numbers = _numbers(
        spec,
        layout,
        settings,
        kv_format=start.kv_format,
        pools=pools,
        binding=order[0],
        recurrent=shape.recurrent,
    )
    ledger = Ledger(
        engine=Engine.SGLANG,
        version=settings.version or "newest",
        ranks=tuple(ranks[i] for i in order),
        kv=numbers,
        n_layers=shape.n_layers,
        verdict=Verdict(fits=True),
        assumptions=_assumptions(settings, start.fraction, numbers),
    )
    return replace(ledger, verdict=Verdict(fits=fits(ledger)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangStart:
    """What is fixed before memory is counted: the card, what is free on it, the static fraction, the cache's format."""

    total: Estimate
    free: Estimate
    fraction: float
    kv_format: EngineKvFormat
    graphs: Estimate


def _start(
    shape: ModelShape, accelerator: Accelerator, layout: Layout, settings: EngineSettings
) -> SglangStart:
    total = device_total(accelerator, settings)
    free = rest_of(total, [fitted(HOST_BYTES if shares_memory(accelerator) else CONTEXT_BYTES)])
    if settings.free_memory_bytes is not None:
        free = Estimate.exactly(float(settings.free_memory_bytes))
    fraction = settings.memory_utilization or default_static_fraction(
        sglang_version(settings.version),
        card_bytes=float(accelerator.driver_memory_bytes or total.best),
        tp=layout.tp,
        pp=layout.pp,
        attention_dp=layout.attention_dp,
        shape=shape,
        chunk=flag_value(Engine.SGLANG, CHUNK_FLAG, settings.max_batched_tokens, layout),
        prompts_captured=_captures_prompts(shape, accelerator, layout, settings),
    )
    named = (settings.kv_dtype or "auto").lower()
    if named == "auto" and shape.compressed:
        named = "fp8"  # the default of these models
    return SglangStart(
        total=total,
        free=free,
        fraction=fraction,
        kv_format=engine_kv_format("bf16" if named == "auto" else named),
        graphs=_graphs(accelerator, layout, settings),
    )


def _rank(
    shape: ModelShape,
    layout: Layout,
    settings: EngineSettings,
    *,
    start: SglangStart,
    plan: ShardPlan,
    stage: StageLayers,
    cells: Cells,
) -> tuple[RankLedger, int | None]:
    """One GPU of a stage, and its slots of recurrent state."""
    weights = weights_estimate(shape, plan, stage_weights(shape, stage, plan).total)
    loading = _loading(layout)
    budget = start.free.scaled(start.fraction)
    rest = rest_of(budget, [weights, loading])
    states, slots = _states(shape, float(rest.best), cells, settings)
    lines = [
        Line(kind=LineKind.WEIGHTS, bytes=weights, note=layers_note(stage)),
        Line(kind=LineKind.NON_TORCH, bytes=loading, note="taken while loading beside the weights"),
        Line(
            kind=LineKind.GRAPHS,
            bytes=start.graphs,
            note="taken from what the static fraction leaves",
            counted=False,
        ),
    ]
    if states:
        note = f"{slots:,} slots of recurrent state"
        lines.append(Line(kind=LineKind.STATES, bytes=Estimate.exactly(states), note=note))
    kv = rest_of(rest, [Estimate.exactly(states)])
    if settings.available_kv_bytes is not None:
        kv = Estimate.exactly(float(settings.available_kv_bytes))
    rank = RankLedger(
        label=stage_label(stage),
        stage=stage.index,
        stages=stage.of,
        gpus=layout.tp * layout.dp,
        total=start.total,
        budget=budget,
        lines=tuple(lines),
        kv=kv,
        left=rest_of(start.free, [budget, start.graphs]),
        pool_share=1.0 if settings.available_kv_bytes is None else None,
    )
    return rank, slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Bytes per token of the layers of one stage, on one GPU; recurrent bytes per sequence; its longest window in tokens."""

    full: int
    sliding: int
    state: int
    window: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPool:
    """What one stage has for tokens. `window_ratio`: tokens of the sliding pool over the full pool's; `page`: tokens of a page."""

    available_bytes: float
    cells: Cells
    slots: int | None
    window_ratio: float
    page: int

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one token of the full pool costs, its share of the sliding pool included."""
        if not self.cells.full:
            return float(self.cells.sliding)
        return self.cells.full + self.window_ratio * self.cells.sliding

    @property
    def tokens(self) -> int:
        """Tokens of the full pool, cut to whole pages."""
        if not self.bytes_per_token:
            return 0
        return max(0, int(self.available_bytes / self.bytes_per_token)) // self.page * self.page

    @property
    def window_tokens(self) -> int | None:
        """Tokens of the sliding pool; None where no layer has a window."""
        return int(self.tokens * self.window_ratio) if self.cells.sliding else None

    def places(self, *, slots_per_request: int, spare_slots: int) -> Room | None:
        """Slots of state and how many each request takes; None for models without."""
        if self.slots is None:
            return None
        return Room(what="slots of state", have=max(0, self.slots - spare_slots), each=slots_per_request)

    def room(self, tokens: int, *, places: Room | None) -> Room:
        """The pool that has room for the fewest sequences of `tokens` tokens.

        Ignores: the part of a prompt that is beyond the window while it is computed.
        """
        pools = []
        if self.bytes_per_token:
            pools.append(Room(what="tokens", have=self.tokens, each=tokens))
        if self.window_tokens is not None:
            each = min(tokens, self.cells.window)
            pools.append(Room(what="tokens of the sliding pool", have=self.window_tokens, each=each))
        if places is not None:
            pools.append(places)
        return min(pools, key=lambda pool: pool.sequences, default=Room(what="tokens", have=0, each=tokens))


def _cells(shape: ModelShape, stage: StageLayers, rules: CacheRules) -> Cells:
    full = sliding = state = window = 0
    for layer, count in count_layers(shape.stage_blocks(stage.first, stage.last), rules).items():
        if layer.kind is CacheKind.SLIDING:
            sliding += count * layer.page_bytes
            window = max(window, layer.window or 0)
        elif layer.kind is CacheKind.STATE:
            state += count * layer.page_bytes
        else:
            full += count * layer.page_bytes
    return Cells(full=full, sliding=sliding, state=state, window=window)


def _states(
    shape: ModelShape, rest: float, cells: Cells, settings: EngineSettings
) -> tuple[float, int | None]:
    """(bytes, slots) of the pool of recurrent states; (0, None) for models without."""
    if not cells.state:
        return 0.0, None
    if not shape.recurrent:
        # Rings of a compressor: one for each request that may run, and one to spare.
        slots = (settings.max_seqs or COMPRESSED_REQUESTS) + 1
        return float(slots * cells.state), slots
    if settings.state_slots is not None:
        return float(settings.state_slots * cells.state), settings.state_slots
    share = settings.state_memory_ratio / (1 + settings.state_memory_ratio)
    slots = max(0, int(rest * share // cells.state))
    return float(slots * cells.state), slots


def _loading(layout: Layout) -> Estimate:
    low, best, high = LOADING_BYTES[max(k for k in LOADING_BYTES if k <= max(layout.tp, 1))]
    return fitted((low * GIB, best * GIB, high * GIB))


def _captures_prompts(
    shape: ModelShape, accelerator: Accelerator, layout: Layout, settings: EngineSettings
) -> bool:
    """Whether CUDA graphs of prompts are the default: NVIDIA, one stage, keys and values for every head, no tower.

    Ignores: latent attention and recurrent layers, where releases differ, and architectures that one leaves out by name.
    """
    others = LatentAttention | CompressedAttention | Mixer
    plain = not any(isinstance(sublayer, others) for block in shape.blocks for sublayer in block.sublayers)
    return (
        accelerator.vendor == "NVIDIA"
        and plain
        and layout.pp == 1
        and layout.attention_dp == 1
        and shape.vision is None
        and not settings.enforce_eager
    )


def _graphs(accelerator: Accelerator, layout: Layout, settings: EngineSettings) -> Estimate:
    """CUDA graphs, taken after the pool: by the number of captured batch sizes."""
    if settings.enforce_eager:
        return Estimate.exactly(0.0, Provenance.FITTED)
    row = card_defaults(sglang_version(settings.version), float(accelerator.cuda_memory.best) / GIB)
    largest = row.graph_batch_wide if layout.tp >= 4 else row.graph_batch
    sizes = settings.graph_sizes or (4 if largest <= 8 else 4 + largest // 8)
    best = GRAPH_FIXED_BYTES + sizes * GRAPH_BYTES_PER_SIZE
    return fitted((0.5 * best, best, GRAPH_RANGE * best))


def _numbers(
    spec: ModelSpec,
    layout: Layout,
    settings: EngineSettings,
    *,
    kv_format: EngineKvFormat,
    pools: list[TokenPool],
    binding: int,
    recurrent: bool,
) -> KvNumbers:
    pool = pools[binding]
    tokens, per_token, page = pool.tokens, pool.bytes_per_token, pool.page
    max_len = settings.max_model_len or spec.max_positions or FALLBACK_LENGTH
    # An engine that only refuses long requests starts; a length that was asked for must fit.
    wanted = max_len if settings.max_model_len else min(max_len, max(tokens, 1))
    places = pool.places(
        slots_per_request=1 if not recurrent or settings.prefix_caching is False else SLOTS_PER_REQUEST,
        spare_slots=0 if recurrent else 1,
    )
    room = pool.room(max_len, places=places)
    return KvNumbers(
        logical_bytes_per_token=logical_bytes_per_token(spec, kv_format),
        reserved_bytes=sum(p.bytes_per_token for p in pools) * tokens * layout.tp * layout.dp,
        block_size=page,
        block_bytes=int(per_token * page),
        num_blocks=tokens // page,
        tokens=tokens,
        printed_tokens=tokens,
        max_model_len=max_len,
        max_concurrency=tokens / max_len,
        most_running=room.sequences,
        room=room,
        most_requests=None if places is None else places.sequences,
        needed_bytes=int(per_token * wanted),
        available_bytes=pool.available_bytes,
        longest_length=min(tokens, max_len) if per_token else max_len,
        window_tokens=pool.window_tokens,
        state_slots=pool.slots,
    )


def _assumptions(settings: EngineSettings, fraction: float, kv: KvNumbers) -> tuple[str, ...]:
    found = []
    if settings.memory_utilization is None:
        found.append(f"The static fraction is this version's default for the card, {fraction:.3f}.")
    if 0 < kv.tokens < kv.max_model_len and settings.max_model_len is None:
        found.append(f"Requests longer than {kv.tokens:,} tokens will be refused.")
    return tuple(found)
