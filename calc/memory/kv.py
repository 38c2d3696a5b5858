"""Logical cache and state: what the mathematics of a model needs per token and per sequence, before any engine rounds.

Layers of four kinds: unbounded (every token adds), windowed or chunked (at most that many tokens count), compressed
(one entry per so many tokens), and recurrent (fixed state per sequence). Cross-attention caches per encoder token.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.errors import InputError
from calc.model import Attention, CompressedAttention, LatentAttention, Mixer, ModelSpec
from calc.quantization import FORMATS, cache_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`layers` layers that keep at most `window` tokens, together `bytes_per_token` for each of them.

    `chunked`: tokens attend within aligned chunks; the chunk is the most that is ever kept.
    """

    layers: int
    window: int
    bytes_per_token: int
    chunked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed:
    """`layers` layers that keep one entry for every `ratio` tokens, together `bytes_per_entry`."""

    layers: int
    ratio: int
    bytes_per_entry: int
    indexer_bytes_per_entry: int


def kv_bytes_per_token(spec: ModelSpec, kv_dtype: str = "bf16") -> int:
    """Bytes that one token adds to the layers whose cache grows without bound (windows and indexer keys apart).

    Compressed layers count their entries spread over the tokens they stand for, rounded down.
    """
    return _token_cache_bytes(spec, kv_dtype) + sum(
        c.bytes_per_entry // c.ratio for c in compressed(spec, kv_dtype)
    )


def kv_heads(spec: ModelSpec) -> int | None:
    """KV heads that tensor parallelism can divide; None where the cache is one latent that every rank holds."""
    found = []
    for _, sublayer in spec.decoder_sublayers():
        if isinstance(sublayer, LatentAttention | CompressedAttention):
            return None
        if isinstance(sublayer, Attention) and sublayer.cached_elements_per_token:
            found.append(sublayer.n_kv_heads)
    return min(found) if found else None


def kv_copies(spec: ModelSpec, tp: int) -> float:
    """How many of `tp` ranks hold the same cache: more ranks than KV heads, or a latent that cannot be split."""
    heads = kv_heads(spec)
    return float(tp) if heads is None else max(1.0, tp / heads)


def windows(spec: ModelSpec, kv_dtype: str = "bf16") -> tuple[Window, ...]:
    """Windowed and chunked layers, grouped by their window, smallest first."""
    groups: dict[tuple[int, bool], list[int]] = {}
    for count, sublayer in spec.decoder_sublayers():
        if isinstance(sublayer, CompressedAttention):
            key, elements = (sublayer.window, False), sublayer.entry_elements
        elif isinstance(sublayer, Attention) and (sublayer.window or sublayer.chunk) and not sublayer.cross:
            key = (sublayer.window or sublayer.chunk or 0, sublayer.window is None)
            elements = sublayer.cached_elements_per_token
        else:
            continue
        if elements:
            group = groups.setdefault(key, [0, 0])
            group[0] += count
            group[1] += count * cache_bytes(elements, kv_dtype)
    return tuple(
        Window(layers=layers, window=window, bytes_per_token=size, chunked=chunked)
        for (window, chunked), (layers, size) in sorted(groups.items())
    )


def compressed(spec: ModelSpec, kv_dtype: str = "bf16") -> tuple[Compressed, ...]:
    """Layers that keep one entry per `ratio` tokens (DeepSeek-V4), by ratio."""
    groups: dict[int, list[int]] = {}
    for count, sublayer in spec.decoder_sublayers():
        if isinstance(sublayer, CompressedAttention) and sublayer.ratio is not None:
            group = groups.setdefault(sublayer.ratio, [0, 0, 0])
            group[0] += count
            group[1] += count * cache_bytes(sublayer.entry_elements, kv_dtype)
            if sublayer.indexer is not None and sublayer.indexer.owns_keys:
                group[2] += count * cache_bytes(sublayer.indexer.head_dim, kv_dtype)
    return tuple(
        Compressed(layers=layers, ratio=ratio, bytes_per_entry=size, indexer_bytes_per_entry=index)
        for ratio, (layers, size, index) in sorted(groups.items())
    )


def indexer_bytes_per_token(spec: ModelSpec, kv_dtype: str = "bf16") -> int:
    """Bytes of index keys that one token adds on layers with a key selector of their own.

    Compressed layers count the keys of their entries spread over the tokens they stand for, rounded down.
    """
    spread = sum(c.indexer_bytes_per_entry // c.ratio for c in compressed(spec, kv_dtype))
    return _token_index_bytes(spec, kv_dtype) + spread


def cross_bytes_per_encoder_token(spec: ModelSpec, kv_dtype: str = "bf16") -> int:
    """Bytes that one encoder (or image) token keeps in the cross-attention layers, fixed after encoding."""
    return sum(
        count * cache_bytes(sublayer.cached_elements_per_token, kv_dtype)
        for count, sublayer in spec.decoder_sublayers()
        if isinstance(sublayer, Attention) and sublayer.cross
    )


def state_elements(spec: ModelSpec) -> tuple[int, int]:
    """(convolution, recurrent) elements of fixed state that one sequence keeps."""
    conv = recurrent = 0
    for count, sublayer in spec.decoder_sublayers():
        if isinstance(sublayer, Mixer):
            conv += count * sublayer.conv_elements
            recurrent += count * sublayer.recurrent_elements
    return conv, recurrent


def state_bytes_per_sequence(spec: ModelSpec) -> int:
    """Bytes of fixed state of one sequence, each part in the format that the reference implementation keeps."""
    return sum(
        count
        * (
            FORMATS[sublayer.conv_format].tensor_bytes((sublayer.conv_elements,))
            + FORMATS[sublayer.recurrent_format].tensor_bytes((sublayer.recurrent_elements,))
        )
        for count, sublayer in spec.decoder_sublayers()
        if isinstance(sublayer, Mixer)
    )


def sequence_bytes(spec: ModelSpec, context: int, kv_dtype: str = "bf16", *, encoder_tokens: int = 0) -> int:
    """All cache and state of one sequence of `context` tokens (and `encoder_tokens` for cross-attention)."""
    if context < 0:
        raise InputError("context", context, "it must be 0 or more tokens")
    return _curve(spec, kv_dtype, encoder_tokens).at(context)


def largest_context(
    spec: ModelSpec, available_bytes: int, kv_dtype: str = "bf16", *, encoder_tokens: int = 0
) -> int | None:
    """The longest sequence whose cache and state fit in `available_bytes`; the inverse of `sequence_bytes`.

    0 when not even the fixed state and one token fit; None when the state stops growing, so that any length fits.
    """
    curve = _curve(spec, kv_dtype, encoder_tokens)
    if curve.at(1) > available_bytes:
        return 0
    if not curve.grows and curve.at(curve.settled) <= available_bytes:
        return None
    high = 2
    while curve.at(high) <= available_bytes:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if curve.at(middle) <= available_bytes else (low, middle)
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    """Bytes of a sequence against its length: fixed + slope·n + windows + compressed entries."""

    fixed: int
    slope: int
    windows: tuple[Window, ...]
    compressed: tuple[Compressed, ...]

    @property
    def grows(self) -> bool:
        return self.slope > 0 or bool(self.compressed)

    @property
    def settled(self) -> int:
        """The length from which windows no longer grow."""
        return max((w.window for w in self.windows), default=1)

    def at(self, context: int) -> int:
        windowed = sum(w.bytes_per_token * min(context, w.window) for w in self.windows)
        entries = sum(
            (c.bytes_per_entry + c.indexer_bytes_per_entry) * (context // c.ratio) for c in self.compressed
        )
        return self.fixed + self.slope * context + windowed + entries


def _curve(spec: ModelSpec, kv_dtype: str, encoder_tokens: int) -> _Curve:
    cross = cross_bytes_per_encoder_token(spec, kv_dtype) * encoder_tokens
    return _Curve(
        fixed=state_bytes_per_sequence(spec) + cross,
        slope=_token_cache_bytes(spec, kv_dtype) + _token_index_bytes(spec, kv_dtype),
        windows=windows(spec, kv_dtype),
        compressed=compressed(spec, kv_dtype),
    )


def _token_cache_bytes(spec: ModelSpec, kv_dtype: str) -> int:
    """Keys, values and latents of one token on layers that keep every token."""
    return sum(
        count * cache_bytes(sublayer.cached_elements_per_token, kv_dtype)
        for count, sublayer in spec.decoder_sublayers()
        if isinstance(sublayer, LatentAttention)
        or (isinstance(sublayer, Attention) and not (sublayer.cross or sublayer.window or sublayer.chunk))
    )


def _token_index_bytes(spec: ModelSpec, kv_dtype: str) -> int:
    """Index keys of one token on layers that keep every token's."""
    return sum(
        count * cache_bytes(sublayer.indexer.head_dim, kv_dtype)
        for count, sublayer in spec.decoder_sublayers()
        if isinstance(sublayer, LatentAttention | Attention)
        and sublayer.indexer is not None
        and sublayer.indexer.owns_keys
    )
