"""What a sequence keeps, by kind of layer; and the layers as repeated patterns, so that hybrids read in a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from calc.block_map import NOTHING, describe, layer_groups
from calc.model import Attention, CompressedAttention, Indexer, LatentAttention, Mixer, ModelSpec
from calc.quantization import FORMATS, cache_bytes

LONGEST_PERIOD: Final = 16  # layers; published hybrids repeat within 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """State of `layers` layers of one kind, together.

    `bytes_each` is paid for each of what `per` names (a token, an entry of several tokens, an encoder token), for at
    most `window` tokens where one is stated. `fixed_bytes` is paid once per sequence.
    """

    kind: str
    layers: int
    bytes_each: int
    per: str
    window: int | None
    fixed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """`times` repeats of a sequence of (count, kind of layer), in the order that they run."""

    times: int
    layers: tuple[tuple[int, str], ...]

    @property
    def text(self) -> str:
        """For a line: "12 x (3 x gated delta net, full attention)"."""
        inner = ", ".join(f"{count} x {kind}" if count > 1 else kind for count, kind in self.layers)
        if self.times == 1:
            return inner
        return f"{self.times} x ({inner})" if len(self.layers) > 1 else f"{self.times} x {inner}"


def state_rows(spec: ModelSpec, kv_dtype: str = "bf16") -> tuple[StateRow, ...]:
    """One row for each kind of state that the decoder keeps, in the order of its layers; nothing for encoders."""
    merged: dict[tuple[str, str, int | None], list[int]] = {}
    for count, sublayer in spec.decoder_sublayers():
        for row in _rows(sublayer, kv_dtype):
            total = merged.setdefault((row.kind, row.per, row.window), [0, 0, 0])
            total[0] += count
            total[1] += count * row.bytes_each
            total[2] += count * row.fixed_bytes
    return tuple(
        StateRow(kind=kind, per=per, window=window, layers=layers, bytes_each=each, fixed_bytes=fixed)
        for (kind, per, window), (layers, each, fixed) in merged.items()
    )


def _rows(sublayer: object, kv_dtype: str) -> tuple[StateRow, ...]:
    """The state of one layer's sublayer."""
    match sublayer:
        case Mixer():
            fixed = FORMATS[sublayer.conv_format].tensor_bytes((sublayer.conv_elements,))
            fixed += FORMATS[sublayer.recurrent_format].tensor_bytes((sublayer.recurrent_elements,))
            return (_row(describe(sublayer), fixed_bytes=fixed),)
        case CompressedAttention():
            each = cache_bytes(sublayer.entry_elements, kv_dtype)
            rows: tuple[StateRow, ...] = (
                _row(f"sliding window {sublayer.window:,}", each, window=sublayer.window),
            )
            if sublayer.ratio is not None:
                per = f"{sublayer.ratio} tokens"
                rows += (_row("compressed entries", each, per=per), *_index(sublayer.indexer, kv_dtype, per))
            return rows
        case Attention() | LatentAttention() if sublayer.cached_elements_per_token:
            each = cache_bytes(sublayer.cached_elements_per_token, kv_dtype)
            window, per = None, "token"
            if isinstance(sublayer, Attention):
                window, per = (
                    sublayer.window or sublayer.chunk,
                    "encoder token" if sublayer.cross else "token",
                )
            return _row(describe(sublayer), each, per=per, window=window), *_index(
                sublayer.indexer, kv_dtype, "token"
            )
        case _:
            return ()


def _index(indexer: Indexer | None, kv_dtype: str, per: str) -> tuple[StateRow, ...]:
    if indexer is None or not indexer.owns_keys:
        return ()
    return (_row("index keys", cache_bytes(indexer.head_dim, kv_dtype), per=per),)


def _row(
    kind: str, each: int = 0, *, per: str = "token", window: int | None = None, fixed_bytes: int = 0
) -> StateRow:
    return StateRow(kind=kind, layers=1, bytes_each=each, per=per, window=window, fixed_bytes=fixed_bytes)


def stacking(spec: ModelSpec, stack: str = "decoder") -> tuple[Pattern, ...]:
    """The layers of a stack as repeated patterns: 48 alternating layers become one line."""
    kinds = [
        " + ".join(part for part in (group.token_mixing, _short(group.feed_forward)) if part != NOTHING)
        for group in layer_groups(spec)
        if group.stack == stack
        for _ in range(group.count)
    ]
    return tuple(Pattern(times=times, layers=run_lengths(unit)) for times, unit in repeats(kinds))


def _short(feed_forward: str) -> str:
    """A feed-forward layer without its sizes, which the table beside the line gives."""
    return NOTHING if feed_forward == NOTHING else "experts" if "experts" in feed_forward else "MLP"


def run_lengths(kinds: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """(count, kind) of equal neighbours."""
    coded: list[tuple[int, str]] = []
    for kind in kinds:
        if coded and coded[-1][1] == kind:
            coded[-1] = (coded[-1][0] + 1, kind)
        else:
            coded.append((1, kind))
    return tuple(coded)


def repeats(kinds: Sequence[str]) -> list[tuple[int, tuple[str, ...]]]:
    """(times, unit): from the left, the repeated unit that covers most layers; what repeats nothing is joined."""
    found: list[tuple[int, tuple[str, ...]]] = []
    at = 0
    while at < len(kinds):
        times, unit = _best_unit(kinds, at)
        if times == 1 and found and found[-1][0] == 1:
            found[-1] = (1, found[-1][1] + unit)
        else:
            found.append((times, unit))
        at += times * len(unit)
    return found


def _best_unit(kinds: Sequence[str], at: int) -> tuple[int, tuple[str, ...]]:
    times, unit = 1, tuple(kinds[at : at + 1])
    for period in range(1, LONGEST_PERIOD + 1):
        candidate = tuple(kinds[at : at + period])
        count = 1
        while tuple(kinds[at + count * period : at + (count + 1) * period]) == candidate:
            count += 1
        if count > 1 and count * period > times * len(unit):
            times, unit = count, candidate
    return times, unit
