"""A ledger as pictures need it: steps from the card to the KV pool, and what breaks first when something grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from calc.accelerator import Accelerator
from calc.engine import LLAMA_CPP_ENGINES
from calc.errors import InputError
from calc.layout import Layout
from calc.memory.engines import EngineSettings, LineKind, RankLedger, ledger
from calc.memory.engines.llama_cpp import MOST_SLOTS, with_layers
from calc.memory.engines.step_tokens import step_tokens
from calc.model import ModelSpec
from calc.provenance import Estimate

POINTS = 24  # of a curve; a ledger takes under a millisecond
LONGEST_CURVE = 4_194_304  # tokens
MOST_SEQUENCES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallStep:
    """One bar of a waterfall: what it pays for, bytes with range, and where it hangs (from `start` down to `end`)."""

    name: str
    bytes: Estimate
    start: float
    end: float
    note: str
    inside_budget: bool


def waterfall(rank: RankLedger) -> tuple[WaterfallStep, ...]:
    """Steps of one GPU from the card's total to the KV pool, and what is left beside it. Bytes."""
    total = float(rank.total.best)
    budget = float(rank.budget.best)
    steps = [
        WaterfallStep(
            name="card",
            bytes=rank.total,
            start=total,
            end=0.0,
            note="memory as the runtime totals it",
            inside_budget=True,
        )
    ]
    outside = total - budget
    if outside > 0:
        steps.append(
            WaterfallStep(
                name="outside the engine's share",
                bytes=Estimate.exactly(outside, rank.total.provenance),
                start=total,
                end=budget,
                note=_outside_note(rank),
                inside_budget=False,
            )
        )
    at = budget
    for line in rank.lines:
        if not line.counted:
            continue
        size = float(line.bytes.best)
        steps.append(
            WaterfallStep(
                name=str(line.kind),
                bytes=line.bytes,
                start=at,
                end=at - size,
                note=line.note,
                inside_budget=True,
            )
        )
        at -= size
    steps.append(
        WaterfallStep(
            name=str(LineKind.KV),
            bytes=rank.kv,
            start=at,
            end=at - float(rank.kv.best),
            note="blocks for keys and values",
            inside_budget=True,
        )
    )
    return tuple(steps)


def _outside_note(rank: RankLedger) -> str:
    paid = [str(line.kind) for line in rank.lines if not line.counted]
    return f"pays for {', '.join(paid)} and the runtime's context" if paid else "the runtime's context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What happens to memory when one quantity grows: bytes needed and available at each value, and the wall.

    `wall`: the largest value that still works; None where every value up to the last one does. Per GPU, bytes.
    """

    name: str
    unit: str
    values: tuple[int, ...]
    needed_bytes: tuple[float, ...]
    available_bytes: tuple[float, ...]
    wall: int | None
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatBreaks:
    """The three growths, and which one is nearest to its wall (as a factor on today's value)."""

    growths: tuple[Growth, ...]
    first: str
    factor: float


def what_breaks_first(
    spec: ModelSpec,
    accelerator: Accelerator,
    layout: Layout,
    settings: EngineSettings,
    *,
    sequences: int,
    context_tokens: int,
) -> WhatBreaks:
    """More sequences, longer contexts, more tokens in a step: which one meets the wall first, from today's values.

    `sequences` of `context_tokens` tokens each are served now; slots of llama.cpp hold the length limit each, however short
    what runs in them.
    """
    for name, value in (("sequences", sequences), ("context_tokens", context_tokens)):
        if value < 1:
            raise InputError(name, value, "it must be a positive whole number")

    slotted = settings.engine in LLAMA_CPP_ENGINES
    if slotted:
        settings = with_layers(spec, accelerator, layout, replace(settings, unified_cache=False))
    length = settings.max_model_len or context_tokens if slotted else context_tokens
    batched = settings.max_batched_tokens

    def at(n: int, tokens: int, batched: int | None) -> tuple[float, float]:
        """(bytes needed, bytes available) for n sequences or slots."""
        chosen = replace(settings, max_model_len=tokens, max_batched_tokens=batched)
        if slotted:
            chosen = replace(chosen, max_seqs=n)
        kv = ledger(spec, accelerator, layout, chosen, nearest=False).kv
        return float(kv.needed_bytes) * (1 if slotted else n), kv.available_bytes

    each, available = at(1, length, batched)
    held = int(available // each) if each and available > 0 else 0

    def more(n: int) -> tuple[float, float]:
        return at(n, length, batched) if slotted else (n * each, available)

    if slotted:
        held = _largest(more, 1, MOST_SLOTS)
    most = MOST_SLOTS if slotted else MOST_SEQUENCES
    values = _spread(max(2 * held, 2 * sequences, 8), most)
    growths = [_growth("sequences", "sequences", sequences, values, more, wall=held)]
    for name, now, curve in (
        ("context", length, lambda tokens: at(sequences, tokens, batched)),
        (
            "batched tokens",
            step_tokens(spec, accelerator, layout, replace(settings, max_model_len=length)),
            lambda tokens: at(sequences, length, tokens),
        ),
    ):
        wall = _largest(curve, 1, LONGEST_CURVE)
        values = _spread(_reach(now, wall), LONGEST_CURVE)
        growths.append(_growth(name, "tokens", now, values, curve, wall=wall))
    factors = {g.name: g.wall / g.now for g in growths if g.wall is not None}
    first = min(factors, key=factors.__getitem__, default="")
    return WhatBreaks(growths=tuple(growths), first=first, factor=factors.get(first, float("inf")))


def _growth(
    name: str,
    unit: str,
    now: int,
    values: Sequence[int],
    at: Callable[[int], tuple[float, float]],
    *,
    wall: int,
) -> Growth:
    points = [at(value) for value in values]
    return Growth(
        name=name,
        unit=unit,
        values=tuple(values),
        needed_bytes=tuple(needed for needed, _ in points),
        available_bytes=tuple(available for _, available in points),
        wall=None if wall >= LONGEST_CURVE else wall,
        now=now,
    )


def _spread(last: int, most: int) -> list[int]:
    """Up to POINTS whole values from 1 to `last`, evenly spread."""
    last = max(2, min(last, most))
    return sorted({max(1, round(1 + i * (last - 1) / (POINTS - 1))) for i in range(POINTS)})


def _largest(at: Callable[[int], tuple[float, float]], low: int, high: int) -> int:
    """The largest value at which what is needed is available; 0 when not even the lowest is."""

    def works(value: int) -> bool:
        needed, available = at(value)
        return available > 0 and needed <= available

    if not works(low):
        return 0
    if works(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def _reach(now: int, wall: int) -> int:
    """How far a curve goes: past its wall where that is near, otherwise to four times today's value."""
    if wall <= now:
        return 2 * now
    return 2 * wall if wall < 4 * now else 4 * now
