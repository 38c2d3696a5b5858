"""From a `ModelSpec` to what each layer caches on one GPU: pages for paged engines, bytes per token for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from calc.memory.engines.kv_formats import EngineKvFormat
from calc.memory.engines.kv_groups import CacheKind, CacheLayer, ceil_div
from calc.model import Attention, Block, CompressedAttention, Indexer, LatentAttention, Mixer

INDEX_KEY_SCALE_BYTES = 4  # one fp32 scale beside an fp8 index key (vLLM's DeepseekV32IndexerCache)
SPARSE_LATENT_FP8_BYTES = 656  # fp8_ds_mla: 512 fp8 latent, 4 fp32 scales, 64 rotary elements in 16 bit
COMPRESSED_ENTRY_FP8_BYTES = 584  # DeepSeek-V4: 448 fp8, 64 rotary elements in 16 bit, scales
COMPRESSED_ALIGNMENT = 576  # pages are padded to a multiple of this
COMPRESSED_BLOCK = 256
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
    """The keys that a layer's own selector caches: fp8, whatever the cache's format, with a scale."""
    key = indexer.head_dim + INDEX_KEY_SCALE_BYTES
    return CacheLayer(kind=CacheKind.FULL, page_bytes=key * size, block_size=size)


def _compressed_layers(compressed: CompressedAttention, rules: CacheRules) -> list[CacheLayer]:
    """Entries for good of DeepSeek-V4's compressed layers, in pages of 256 tokens.

    Ignores the short windows and the compressors' states, which do not grow with the context: an upper bound of tokens.
    """
    if compressed.ratio is None:
        return []
    size = rules.block_size or COMPRESSED_BLOCK
    entries = ceil_div(size, compressed.ratio)
    entry = COMPRESSED_ENTRY_FP8_BYTES
    if rules.kv_format.bytes_per_element > 1:
        entry = int(compressed.entry_elements * rules.kv_format.bytes_per_element)
    page = _padded(entries * entry)
    if compressed.indexer is not None and compressed.indexer.owns_keys:
        page += _padded(entries * (compressed.indexer.head_dim + INDEX_KEY_SCALE_BYTES))
    return [CacheLayer(kind=CacheKind.FULL, page_bytes=page, block_size=size)]


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
