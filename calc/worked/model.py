"""A model's own numbers as worked formulas: its weights as stored, and the cache of a token and of a conversation."""

from __future__ import annotations

from collections.abc import Iterator

from calc.block_map import describe
from calc.memory.kv import kv_bytes_per_token, sequence_bytes
from calc.model import Attention, LatentAttention, ModelSpec
from calc.quantization import cache_bytes
from calc.worked.formula import Worked


def worked_weights(*, parameters: int, stored_bytes: int) -> Worked:
    """The weights' bytes; of a mixture of formats the bytes per parameter are their mean."""
    return Worked(
        formula="weight_bytes",
        inputs={"params": float(parameters), "bytes_per_param": stored_bytes / parameters},
        result=float(stored_bytes),
        about="the weights as they are stored",
    )


def worked_token(spec: ModelSpec, kv_dtype: str) -> tuple[Worked, ...]:
    """What one token adds to the cache: a line for each kind of layer whose cache grows with every token."""
    kinds: dict[tuple[str, int], list[tuple[int, Attention | LatentAttention]]] = {}
    for times, sublayer in spec.decoder_sublayers():
        if isinstance(sublayer, Attention | LatentAttention) and _grows(sublayer):
            kind = (describe(sublayer), sublayer.cached_elements_per_token)
            kinds.setdefault(kind, []).append((times, sublayer))
    return tuple(_of_a_kind(alike[0][1], sum(n for n, _ in alike), kv_dtype) for alike in kinds.values())


def _grows(sublayer: Attention | LatentAttention) -> bool:
    if isinstance(sublayer, Attention) and (sublayer.window or sublayer.chunk or sublayer.cross):
        return False
    return sublayer.cached_elements_per_token > 0


def _of_a_kind(sublayer: Attention | LatentAttention, layers: int, kv_dtype: str) -> Worked:
    elements = sublayer.cached_elements_per_token
    each = cache_bytes(elements, kv_dtype)
    about = f"one token in {layers} x {describe(sublayer)}"
    size = each / elements
    if isinstance(sublayer, Attention) and elements == 2 * sublayer.n_kv_heads * sublayer.head_dim:
        inputs = {"n_kv_heads": float(sublayer.n_kv_heads), "head_dim": float(sublayer.head_dim)}
        formula = "kv_bytes_per_token"
    else:
        inputs = {"cached_elements": float(elements)}
        formula = "cached_bytes_per_token"
    return Worked(
        formula=formula,
        inputs={"layers": float(layers), **inputs, "bytes_per_element": size},
        result=float(layers * each),
        about=about,
    )


def worked_conversation(spec: ModelSpec, kv_dtype: str, tokens: int) -> Iterator[Worked]:
    """A conversation's cache, where every token costs the same: no windows, no fixed state."""
    per_token, whole = kv_bytes_per_token(spec, kv_dtype), sequence_bytes(spec, tokens, kv_dtype)
    if 0 < whole == tokens * per_token:
        yield Worked(
            formula="sequence_kv_bytes",
            inputs={"tokens": float(tokens), "kv_bytes_per_token": float(per_token)},
            result=float(whole),
            about=f"a conversation of {tokens:,} tokens",
        )
