"""llama.cpp and Ollama: nothing is profiled or filled; the context that is asked for is allocated in cells.

    memory = weights on the GPU + cells x layers x (K + V bytes) + window cells + recurrent states + compute buffer

Source: src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp, llama-context.cpp; exact on public logs
(docs/accuracy.md). The compute buffer follows 4 x n_ubatch x (vocabulary + width) bytes with flash attention.
Ignores: vision projectors (about 1.1 GiB where there is one), second caches that a config does not show.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.accelerator import Accelerator
from calc.arrays import largest_count
from calc.engine import Engine
from calc.layout import Layout
from calc.memory.engines.estimates import device_total, fitted, logical_bytes_per_token, rest_of
from calc.memory.engines.kv_formats import EngineKvFormat, engine_kv_format
from calc.memory.engines.kv_groups import ceil_div
from calc.memory.engines.ledger import KvNumbers, Ledger, Line, LineKind, RankLedger
from calc.memory.engines.nearest import fits
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.shapes import ModelShape, shape_of
from calc.model import Attention, Block, CompressedAttention, LatentAttention, Mixer, ModelSpec, Role, Weight
from calc.provenance import Estimate
from calc.quantization import FORMATS, format_after
from calc.units import GIB, MIB
from calc.verdict import Verdict

MOST_SLOTS = 256  # LLAMA_MAX_SEQ of llama.cpp's llama-cparams.h
CELL_PADDING = 256  # contexts and windows are padded to this many cells
MICRO_BATCH = 512  # n_ubatch
OLLAMA_CONTEXT = 4096  # Ollama's default on cards below 24 GiB
FALLBACK_LENGTH = 8192
CONTEXT_BYTES = (0.2 * GIB, 0.4 * GIB, 0.6 * GIB)  # CUDA context and libraries
ROLLBACK_COMPUTE_BYTES = 73 * MIB  # recurrent models that keep states to roll back to
UNFUSED_ATTENTION_BYTES = 48 * MIB
STATE_ELEMENT_BYTES = 4  # recurrent states are f32
COMPUTE_RANGE_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Cells of the cache: of one stream for full and for windowed layers, and how many streams there are."""

    full: int
    streams: int
    states: int

    def windowed(self, window: int, *, n_seq: int, micro_batch: int, unified: bool) -> int:
        """Cells of one stream for layers of a window: the window of every sequence in it and one micro batch."""
        wanted = min(self.full, window * (n_seq if unified else 1) + micro_batch)
        return ceil_div(wanted, CELL_PADDING) * CELL_PADDING


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBytes:
    """Bytes of the caches of some layers."""

    full: float
    windowed: float
    states: float

    @property
    def total(self) -> float:
        return self.full + self.windowed + self.states


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaStart:
    """Settings with llama.cpp's defaults filled in. `context` is of one sequence where cells are not shared."""

    context: int
    n_seq: int
    micro_batch: int
    kv_format: EngineKvFormat
    gpu_layers: int
    assumptions: tuple[str, ...]


def ollama_memory(
    spec: ModelSpec, accelerator: Accelerator, layout: Layout, settings: EngineSettings
) -> Ledger:
    """The ledger under Ollama, which moves layers to the CPU until the rest fits, and is llama.cpp after that."""
    if settings.gpu_layers is None:
        settings = replace(settings, gpu_layers=fitting_layers(spec, accelerator, layout, settings))
    return llama_cpp_memory(spec, accelerator, layout, settings)


def llama_cpp_message(ledger: Ledger) -> str:
    """The kind of failure that llama.cpp shows: an allocation that the device refuses."""
    kv = ledger.kv
    return (
        f"Failed to allocate the KV cache: {kv.needed_bytes / MIB:,.0f} MiB for {kv.max_model_len:,} tokens, and "
        f"{max(kv.available_bytes, 0) / MIB:,.0f} MiB are free beside weights and buffers. "
        f"The longest context that fits is {kv.longest_length:,} tokens."
    )


def resolve_llama(shape: ModelShape, settings: EngineSettings) -> LlamaStart:
    """Context, slots, micro batch and cache format as flagged, or llama.cpp's defaults."""
    assumptions = []
    context = settings.max_model_len
    if context is None:
        context = shape.spec.max_positions or FALLBACK_LENGTH
        if settings.engine is Engine.OLLAMA:
            context = min(context, OLLAMA_CONTEXT)
        assumptions.append(f"The context is the default, {context:,} tokens.")
    named = (settings.kv_dtype or "auto").lower()
    layers = shape.n_layers if settings.gpu_layers is None else min(settings.gpu_layers, shape.n_layers)
    if layers < shape.n_layers:
        assumptions.append(f"{shape.n_layers - layers} of {shape.n_layers} layers run on the CPU.")
    return LlamaStart(
        context=context,
        n_seq=settings.max_seqs or 1,
        micro_batch=settings.max_batched_tokens or MICRO_BATCH,
        kv_format=engine_kv_format("fp16" if named == "auto" else named),
        gpu_layers=layers,
        assumptions=tuple(assumptions),
    )


def cells_of(start: LlamaStart, settings: EngineSettings) -> Cells:
    """Cells of a start: shared by all slots, or a stream of the whole context for each (what `--ctx-size` over slots is)."""
    streams = 1 if settings.unified_cache else start.n_seq
    rollback = 1 + settings.draft_tokens
    padded = ceil_div(start.context, CELL_PADDING) * CELL_PADDING
    return Cells(full=padded, streams=streams, states=start.n_seq * rollback)


def cache_bytes_of(
    blocks: list[tuple[int, Block]], start: LlamaStart, cells: Cells, settings: EngineSettings
) -> CacheBytes:
    """Bytes of the caches of (count, block) layers."""
    full = windowed = states = 0.0
    for count, block in blocks:
        for sublayer in block.sublayers:
            if isinstance(sublayer, Mixer):
                elements = sublayer.conv_elements + sublayer.recurrent_elements
                states += count * cells.states * elements * STATE_ELEMENT_BYTES
                continue
            if isinstance(sublayer, CompressedAttention):
                caches = compressed_cache_bytes(sublayer, start, cells, settings)
                full, windowed = full + count * caches.full, windowed + count * caches.windowed
                states += count * caches.states
                continue
            if isinstance(sublayer, Attention):
                elements, window = sublayer.cached_elements_per_token, sublayer.window
            elif isinstance(sublayer, LatentAttention):
                elements, window = sublayer.cached_elements_per_token, None
            else:
                continue
            per_cell = elements * start.kv_format.bytes_per_element
            if window and not settings.full_window_cache:
                kept = cells.windowed(
                    window,
                    n_seq=start.n_seq,
                    micro_batch=start.micro_batch,
                    unified=settings.unified_cache,
                )
                windowed += count * per_cell * kept * cells.streams
            else:
                full += count * per_cell * cells.full * cells.streams
    return CacheBytes(full=full, windowed=windowed, states=states)


def compressed_cache_bytes(
    compressed: CompressedAttention, start: LlamaStart, cells: Cells, settings: EngineSettings
) -> CacheBytes:
    """One layer of DeepSeek-V4: cells of the window, of compressed entries (padded), index keys, compressor states.

    Source: src/llama-kv-cache-dsv4.cpp (llama.cpp pull request 24162): K only; entries are context over ratio, padded to 256.
    """
    element = start.kv_format.bytes_per_element
    window = cells.windowed(
        compressed.window, n_seq=start.n_seq, micro_batch=start.micro_batch, unified=settings.unified_cache
    )
    windowed = window * compressed.head_dim * element * cells.streams
    if compressed.ratio is None:
        return CacheBytes(full=0.0, windowed=windowed, states=0.0)
    overlap = 2 if compressed.indexer is not None else 1
    widths = compressed.head_dim + (compressed.indexer.head_dim if compressed.indexer is not None else 0)
    entries = ceil_div(ceil_div(cells.full, compressed.ratio), CELL_PADDING) * CELL_PADDING
    rows = overlap * compressed.ratio
    return CacheBytes(
        full=entries * widths * element * cells.streams,
        windowed=windowed,
        states=start.n_seq * rows * 2 * overlap * widths * STATE_ELEMENT_BYTES,
    )


def compute_buffer_bytes(shape: ModelShape, start: LlamaStart, settings: EngineSettings) -> float:
    """Bytes of the compute buffer on the GPU."""
    logits = 4.0 * start.micro_batch * (shape.vocab_size + shape.hidden)
    if shape.recurrent and settings.draft_tokens:
        logits += ROLLBACK_COMPUTE_BYTES
    if settings.flash_attention:
        return logits
    scores = 4.0 * shape.n_heads * start.micro_batch * start.context
    return max(logits, scores + UNFUSED_ATTENTION_BYTES)


def _tensor_bytes(weight: Weight, role: Role, quantization: str | None) -> float:
    name = weight.stored if quantization is None else format_after(weight, role, quantization)
    return FORMATS[name].tensor_bytes(weight.shape)


def gpu_weight_bytes(shape: ModelShape, start: LlamaStart, settings: EngineSettings) -> float:
    """Bytes of the weights on the GPU: the last layers and the head; the input embedding stays on the host.

    A tied embedding is on the GPU as the output matrix. With no layer on the GPU, nothing is.
    """
    spec, quantization = shape.spec, settings.quantization
    if not start.gpu_layers:
        return 0.0
    first = shape.n_layers - start.gpu_layers
    total = 0.0
    for count, block in shape.stage_blocks(first, shape.n_layers):
        if not block.shares_weights:
            total += count * sum(_tensor_bytes(w, Role.DECODER, quantization) for w in block.weights())
    head = spec.embeddings if spec.tied else spec.lm_head
    final = spec.decoder.weights if spec.decoder is not None else ()
    return total + sum(_tensor_bytes(w, Role.DECODER, quantization) for w in (*head, *final))


def llama_cpp_memory(
    spec: ModelSpec, accelerator: Accelerator, layout: Layout, settings: EngineSettings
) -> Ledger:
    """The ledger without nearest changes. Several GPUs (tp) share layers evenly, as llama.cpp splits them."""
    shape = shape_of(spec)
    start = resolve_llama(shape, settings)
    cells = cells_of(start, settings)
    gpus = layout.tp * layout.pp
    first = shape.n_layers - start.gpu_layers
    cache = cache_bytes_of(shape.stage_blocks(first, shape.n_layers), start, cells, settings)
    needed = cache.total / gpus
    rank, free = _rank(shape, accelerator, settings, start=start, gpus=gpus, needed=needed)
    available = float(free.best) if settings.available_kv_bytes is None else settings.available_kv_bytes
    tokens = cells.full * cells.streams
    ledger = Ledger(
        engine=settings.engine,
        version=settings.version or "newest",
        ranks=(rank,),
        kv=KvNumbers(
            logical_bytes_per_token=logical_bytes_per_token(spec, start.kv_format),
            reserved_bytes=cache.total,
            block_size=1,
            block_bytes=int(cache.full / max(tokens, 1) / gpus),
            num_blocks=tokens,
            tokens=tokens,
            printed_tokens=tokens,
            max_model_len=start.context,
            max_concurrency=float(cells.streams),
            most_running=cells.streams,
            needed_bytes=int(needed),
            available_bytes=available,
            longest_length=longest_context(shape, start, settings, available_bytes=available * gpus),
            state_slots=cells.states if cache.states else None,
        ),
        n_layers=shape.n_layers,
        verdict=Verdict(fits=True),
        assumptions=start.assumptions,
    )
    return replace(ledger, verdict=Verdict(fits=fits(ledger)))


def _rank(
    shape: ModelShape,
    accelerator: Accelerator,
    settings: EngineSettings,
    *,
    start: LlamaStart,
    gpus: int,
    needed: float,
) -> tuple[RankLedger, Estimate]:
    """One GPU, and what is free on it for caches; `needed` of that is allocated."""
    total = device_total(accelerator, settings)
    weights = gpu_weight_bytes(shape, start, settings) / gpus
    buffer = compute_buffer_bytes(shape, start, settings)
    lines = (
        Line(
            kind=LineKind.WEIGHTS,
            bytes=Estimate.exactly(weights),
            note=f"{start.gpu_layers} of {shape.n_layers} layers; the input embedding stays on the host",
        ),
        Line(
            kind=LineKind.ACTIVATION,
            bytes=fitted((buffer, buffer, buffer + COMPUTE_RANGE_BYTES)),
            note=f"compute buffer for micro batches of {start.micro_batch:,} tokens",
        ),
        Line(kind=LineKind.NON_TORCH, bytes=fitted(CONTEXT_BYTES), note="CUDA context and libraries"),
    )
    free = rest_of(total, [line.bytes for line in lines])
    rank = RankLedger(
        label="every GPU",
        gpus=gpus,
        total=total,
        budget=total,
        lines=lines,
        kv=Estimate.exactly(needed),
        left=rest_of(free, [Estimate.exactly(needed)]),
        pool_share=None,  # as many cells as the context and the slots ask for
    )
    return rank, free


def longest_context(
    shape: ModelShape, start: LlamaStart, settings: EngineSettings, *, available_bytes: float
) -> int:
    """Most tokens of context whose caches fit in `available_bytes`, at most the one asked for."""
    blocks = shape.stage_blocks(shape.n_layers - start.gpu_layers, shape.n_layers)

    def held(context: int) -> bool:
        shorter = replace(start, context=context)
        return cache_bytes_of(blocks, shorter, cells_of(shorter, settings), settings).total <= available_bytes

    return largest_count(held, up_to=start.context)


def most_slots(spec: ModelSpec, accelerator: Accelerator, layout: Layout, settings: EngineSettings) -> int:
    """Most slots of `settings.max_model_len` tokens with which the server starts; 0 when not even one fits.

    The default of one slot is a setting and no limit of the card; every slot has its own cells, so that all of them can be as
    long. Layers that Ollama leaves on the host with one slot stay there: more slots do not push out others.
    """
    settings = with_layers(spec, accelerator, layout, replace(settings, unified_cache=False))

    def starts(slots: int) -> bool:
        return fits(llama_cpp_memory(spec, accelerator, layout, replace(settings, max_seqs=slots)))

    return largest_count(starts, up_to=MOST_SLOTS)


def with_layers(
    spec: ModelSpec, accelerator: Accelerator, layout: Layout, settings: EngineSettings
) -> EngineSettings:
    """The settings with the layers that Ollama puts on the GPU with one slot; llama.cpp's as they are."""
    if settings.gpu_layers is not None or settings.engine is not Engine.OLLAMA:
        return settings
    alone = replace(settings, max_seqs=1)
    return replace(settings, gpu_layers=fitting_layers(spec, accelerator, layout, alone))


def fitting_layers(
    spec: ModelSpec, accelerator: Accelerator, layout: Layout, settings: EngineSettings
) -> int:
    """Most layers that fit on the GPU with their caches; what Ollama decides before it starts the server."""

    def starts(gpu_layers: int) -> bool:
        return fits(llama_cpp_memory(spec, accelerator, layout, replace(settings, gpu_layers=gpu_layers)))

    layers = shape_of(spec).n_layers
    return layers if starts(layers) else largest_count(starts, up_to=layers)
