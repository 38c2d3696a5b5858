"""From a `ModelSpec` to what each layer caches on one GPU: pages for paged engines, bytes per token for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from calc.memory.engines.kv_formats import EngineKvFormat
from calc.memory.engines.kv_groups import CacheKind, CacheLayer, ceil_div
from calc.model import Attention, Block, CompressedAttention, Indexer, LatentAttention, Mixer

SPARSE_LATENT_FP8_BYTES = 656  # fp8_ds_mla: 512 fp8 latent, 4 fp32 scales, 64 rotary elements in 16 bit
COMPRESSED_ENTRY_FP8_BYTES = 584  # DeepSeek-V4: 448 fp8, 64 rotary elements in 16 bit, scales
COMPRESSED_ALIGNMENT = 576  # pages are padded to a multiple of this
COMPRESSED_BLOCK = 256
COMPRESSED_WINDOW_BLOCK = 64  # tokens of a page of the window: as many as entries of ratio 4 in a block
COMPRESSOR_BLOCKS = {4: 4, 128: 8}  # tokens of a page of compressor state, by ratio
COMPRESSOR_STATE_BYTES = 4  # fp32
COMPRESSOR_RING = 8  # SGLang: rows of overlapping states in a page of 256 window tokens
OVERLAPPING_RATIO = 4  # windows of this ratio overlap: their state is twice as wide and lives twice as long
LATENT_BLOCK = 64  # FlashMLA and the sparse backends serve pages of 64 tokens only
DEFAULT_BLOCK = 16
MATERIALISED_HEAD_DIM = 256  # DeepSeek V2 before the latent cache: K and V heads padded to 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """Everything but the model that decides what a layer caches."""

    tp: int = 1
    kv_format: EngineKvFormat
    block_size: int | None = None
    latent_cache: bool = True  # False: MLA materialised as ordinary heads (before vLLM 0.7.1)
    state_pages: int = 1
    draft_tokens: int = 0
    state_dtype: str | None = None
    state_alignment: int = DEFAULT_BLOCK
    token_pool: bool = False  # one pool of tokens instead of pages: SGLang, TensorRT-LLM
    window_pool: bool = False  # ... and one beside it for windows and the states that go with them: SGLang


def local_kv_heads(n_kv_heads: int, tp: int) -> int:
    """KV heads on one GPU: divided by TP, never below one (they are then replicated)."""
    return max(1, ceil_div(n_kv_heads, tp))


def attention_bytes_per_token(attention: Attention, rules: CacheRules) -> int:
    """Bytes that one token adds to one attention layer on one GPU."""
    if not attention.cached_elements_per_token:
        return 0
    heads = local_kv_heads(attention.n_kv_heads, rules.tp)
    width = attention.head_dim + (attention.value_head_dim or attention.head_dim)
    scales = 2 * heads * rules.kv_format.head_scale_bytes
    return int(heads * width * rules.kv_format.bytes_per_element) + scales


def latent_bytes_per_token(latent: LatentAttention, rules: CacheRules) -> int:
    """Bytes that one token adds to one latent layer on one GPU: one copy on every rank, or materialised heads."""
    if not rules.latent_cache:
        heads = ceil_div(latent.n_heads, rules.tp)
        return int(heads * 2 * MATERIALISED_HEAD_DIM * rules.kv_format.bytes_per_element)
    sparse_fp8 = latent.indexer is not None and rules.kv_format.name == "fp8_ds_mla"
    if sparse_fp8:
        return SPARSE_LATENT_FP8_BYTES
    return int(latent.cached_elements_per_token * rules.kv_format.bytes_per_element)


def state_bytes(mixer: Mixer, rules: CacheRules) -> int:
    """Bytes of one sequence's recurrent state in one layer on one GPU; heads are divided by TP.

    Drafted tokens lengthen the convolution's window by as many columns (kernel - 1 is 3 in the models that draft).
    """
    conv_columns = 1 + rules.draft_tokens / 3 if rules.draft_tokens else 1.0
    conv = mixer.conv_elements * conv_columns * ELEMENT_BYTES[mixer.conv_format]
    recurrent = mixer.recurrent_elements * ELEMENT_BYTES[rules.state_dtype or mixer.recurrent_format]
    return ceil_div(int(conv + recurrent), rules.tp)


ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


def cache_layers(block: Block, rules: CacheRules) -> list[CacheLayer]:
    """What one block of the model caches on one GPU, sublayer by sublayer, before hybrid alignment."""
    found: list[CacheLayer] = []
    for sublayer in block.sublayers:
        if isinstance(sublayer, Attention):
            found += _attention_layers(sublayer, rules)
        elif isinstance(sublayer, LatentAttention):
            found += _latent_layers(sublayer, rules)
        elif isinstance(sublayer, CompressedAttention):
            found += _compressed_layers(sublayer, rules)
        elif isinstance(sublayer, Mixer):
            page = state_bytes(sublayer, rules)
            if page:
                found.append(
                    CacheLayer(
                        kind=CacheKind.STATE, page_bytes=page, block_size=1, state_pages=rules.state_pages
                    )
                )
    return found


def _attention_layers(attention: Attention, rules: CacheRules) -> list[CacheLayer]:
    per_token = attention_bytes_per_token(attention, rules)
    if not per_token:
        return []
    size = rules.block_size or DEFAULT_BLOCK
    kind, window = CacheKind.FULL, None
    if attention.cross:
        kind = CacheKind.CROSS
    elif attention.window:
        kind, window = CacheKind.SLIDING, attention.window
    elif attention.chunk:
        kind, window = CacheKind.CHUNKED, attention.chunk
    layers = [CacheLayer(kind=kind, page_bytes=per_token * size, block_size=size, window=window)]
    if attention.indexer is not None and attention.indexer.owns_keys:
        layers.append(_index_keys(attention.indexer, size))
    return layers


def _latent_layers(latent: LatentAttention, rules: CacheRules) -> list[CacheLayer]:
    size = rules.block_size or (LATENT_BLOCK if rules.latent_cache else DEFAULT_BLOCK)
    layers = [
        CacheLayer(
            kind=CacheKind.FULL, page_bytes=latent_bytes_per_token(latent, rules) * size, block_size=size
        )
    ]
    if rules.latent_cache and latent.indexer is not None and latent.indexer.owns_keys:
        layers.append(_index_keys(latent.indexer, size))
    return layers


def _index_keys(indexer: Indexer, size: int) -> CacheLayer:
    """The keys that a layer's own selector caches."""
    return CacheLayer(kind=CacheKind.FULL, page_bytes=indexer.engine_key_bytes * size, block_size=size)


def _compressed_layers(compressed: CompressedAttention, rules: CacheRules) -> list[CacheLayer]:
    """DeepSeek-V4: the window, the entries for good with their index keys, and the states of both compressors.

    Source: vllm/models/deepseek_v4/{attention,compressor}.py and sparse_swa.py of 0.22; a public refusal of that release
    (issue 44376 of the engine) needs 6.66 GiB for 30,000 tokens, as these pages do.
    """
    entry = COMPRESSED_ENTRY_FP8_BYTES
    if rules.kv_format.bytes_per_element > 1:
        entry = int(compressed.entry_elements * rules.kv_format.bytes_per_element)
    ratio, indexer = compressed.ratio, compressed.indexer
    widths = [(entry, compressed.head_dim)]
    if indexer is not None and indexer.owns_keys:
        widths.append((indexer.engine_key_bytes, indexer.head_dim))
    if rules.token_pool:
        return _compressed_tokens(
            compressed, rules, window_bytes=entry, lasting_bytes=sum(stored for stored, _ in widths)
        )

    def windowed(block: int, width: int, window: int) -> CacheLayer:
        page = _padded(block * width)
        return CacheLayer(
            kind=CacheKind.SLIDING, page_bytes=page, block_size=block, window=window, slotted=True
        )

    layers = [windowed(COMPRESSED_WINDOW_BLOCK, entry, compressed.window)]
    if ratio is None:
        return layers
    size = rules.block_size or COMPRESSED_BLOCK
    overlap = 2 if ratio == OVERLAPPING_RATIO else 1
    block = COMPRESSOR_BLOCKS.get(ratio, max(COMPRESSOR_BLOCKS.values()))
    for stored, head_dim in widths:
        page = _padded(ceil_div(size, ratio) * stored)
        layers.append(CacheLayer(kind=CacheKind.FULL, page_bytes=page, block_size=size, slotted=True))
        state = 2 * overlap * head_dim * COMPRESSOR_STATE_BYTES  # what is summed up, and its scores
        layers.append(windowed(block, state, overlap * ratio))
    return layers


def _compressed_tokens(
    compressed: CompressedAttention, rules: CacheRules, *, window_bytes: int, lasting_bytes: int
) -> list[CacheLayer]:
    """The same for an engine with pools of tokens: entries spread over the tokens that they stand for.

    window_bytes: of one token in the window; lasting_bytes: of one entry with its index key.

    With a pool of windows, states of overlapping compressors are rings in its pages, the others a ring for each request.

    Source: DSV4PoolConfigurator in python/sglang/srt/model_executor/pool_configurator.py (2026).
    """
    size, ratio = rules.block_size or DEFAULT_BLOCK, compressed.ratio
    found: list[CacheLayer] = []
    overlapping = ratio == OVERLAPPING_RATIO
    if ratio:
        page = ceil_div(size * lasting_bytes, ratio)
        found.append(CacheLayer(kind=CacheKind.FULL, page_bytes=page, block_size=size))
    if not rules.window_pool:
        return found
    per_token = window_bytes
    if ratio and overlapping and compressed.indexer is not None:
        widths = compressed.head_dim + compressed.indexer.head_dim
        row = 2 * 2 * widths * COMPRESSOR_STATE_BYTES  # sums and scores, twice as wide
        per_token += ceil_div(COMPRESSOR_RING * row, COMPRESSED_BLOCK)
    found.append(
        CacheLayer(
            kind=CacheKind.SLIDING, page_bytes=size * per_token, block_size=size, window=compressed.window
        )
    )
    if ratio and not overlapping:
        ring = ratio * 2 * compressed.head_dim * COMPRESSOR_STATE_BYTES
        found.append(CacheLayer(kind=CacheKind.STATE, page_bytes=ring, block_size=1))
    return found


def _padded(size: int) -> int:
    return ceil_div(size, COMPRESSED_ALIGNMENT) * COMPRESSED_ALIGNMENT


def aligned_rules(blocks: Iterable[Block], rules: CacheRules) -> CacheRules:
    """Rules with the block size enlarged so that an attention page is at least as large as a state's page.

    A model that mixes attention with recurrent layers has one pool; the engine raises the attention block to a multiple
    of the kernel's alignment until its page covers the state.
    """
    states = 0
    per_token = 0
    for block in blocks:
        for sublayer in block.sublayers:
            if isinstance(sublayer, Mixer):
                states = max(states, state_bytes(sublayer, rules))
            elif isinstance(sublayer, Attention):
                per_token = max(per_token, attention_bytes_per_token(sublayer, rules))
            elif isinstance(sublayer, LatentAttention):
                per_token = max(per_token, latent_bytes_per_token(sublayer, rules))
    if not states or not per_token:
        return rules
    step = max(rules.state_alignment, 1)
    aligned = step * ceil_div(states, step * per_token)
    return replace(rules, block_size=max(aligned, rules.block_size or 0))


def count_layers(blocks: Iterable[tuple[int, Block]], rules: CacheRules) -> Counter[CacheLayer]:
    """Cache layers of all blocks, counted by kind."""
    counts: Counter[CacheLayer] = Counter()
    for count, block in blocks:
        for layer in cache_layers(block, rules):
            counts[layer] += count
    return counts
