"""A ledger as one stacked bar for each kind of GPU: what fills it, where the engine's share ends, what one sequence needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.memory.engines import Ledger, LineKind, RankLedger
from calc.provenance import Estimate

SAME_BYTES = 1.0  # ranks whose lines differ by less than this look the same
FREE = "left free"


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPart:
    """One piece of a bar, from zero upwards. `inside`: within the share that the engine may use."""

    name: str
    bytes: Estimate
    note: str
    inside: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBar:
    """The bar of all GPUs that look the same. Bytes of one of them.

    `pool_from` is where the KV pool begins, `wall` where the share of the engine ends: the pool cannot grow beyond it.
    `needed_to` is where one sequence of the longest length ends when it begins at `pool_from`.
    """

    label: str
    gpus: int
    rank: RankLedger
    parts: tuple[BarPart, ...]
    pool_from: float
    wall: float
    needed_to: float
    tightest: bool


def rank_bars(ledger: Ledger) -> tuple[RankBar, ...]:
    """One bar for each kind of GPU, in the order of the pipeline; stages in a row that look the same share one."""
    bars: list[RankBar] = []
    first = last = 0
    for rank in sorted(ledger.ranks, key=lambda r: r.stage):
        tightest = rank is ledger.tightest
        if bars and _alike(bars[-1].rank, rank):
            last = rank.stage
            bars[-1] = replace(
                bars[-1],
                label=f"stages {first + 1} to {last + 1} of {rank.stages}",
                gpus=bars[-1].gpus + rank.gpus,
                tightest=bars[-1].tightest or tightest,
            )
            continue
        first = last = rank.stage
        bars.append(_bar(ledger, rank, tightest=tightest))
    return tuple(bars)


def _alike(one: RankLedger, other: RankLedger) -> bool:
    kinds = [line.kind for line in one.lines] == [line.kind for line in other.lines]
    return kinds and all(
        abs(float(a.bytes.best) - float(b.bytes.best)) < SAME_BYTES
        for a, b in zip(one.lines, other.lines, strict=True)
    )


def _bar(ledger: Ledger, rank: RankLedger, *, tightest: bool) -> RankBar:
    counted = [line for line in rank.lines if line.counted]
    parts = [BarPart(name=str(line.kind), bytes=line.bytes, note=line.note) for line in counted]
    pool_from = float(sum(float(line.bytes.best) for line in counted))
    pool = rank.kv if float(rank.kv.best) > 0 else Estimate.exactly(0.0, rank.kv.provenance)
    parts.append(BarPart(name=str(LineKind.KV), bytes=pool, note="blocks for keys and values"))
    at = pool_from + float(pool.best)
    for line in rank.lines:
        if not line.counted:
            parts.append(BarPart(name=str(line.kind), bytes=line.bytes, note=line.note, inside=False))
            at += float(line.bytes.best)
    free = float(rank.total.best) - at
    if free > 0:
        parts.append(
            BarPart(
                name=FREE,
                bytes=Estimate.exactly(free, rank.left.provenance),
                note="for the runtime's context and whatever else runs on the card",
                inside=False,
            )
        )
    return RankBar(
        label=rank.label,
        gpus=rank.gpus,
        rank=rank,
        parts=tuple(parts),
        pool_from=pool_from,
        wall=float(rank.budget.best),
        needed_to=pool_from + ledger.kv.needed_bytes,
        tightest=tightest,
    )
