"""An engine's memory ledger as worked formulas, from the card to the token count of its log."""

from __future__ import annotations

from collections.abc import Iterator

from calc.memory.engines import Ledger, LineKind
from calc.worked.formula import Worked


def worked_ledger(found: Ledger) -> tuple[Worked, ...]:
    """The tightest GPU of an engine's ledger: its lines, the pool that is left, its blocks, sequences and tokens."""
    rank, kv = found.tightest, found.kv
    total, budget = float(rank.total.best), float(rank.budget.best)
    counted = [line for line in rank.lines if line.counted]

    def of(*kinds: LineKind) -> float:
        return float(sum(line.bytes.best for line in counted if line.kind in kinds))

    named = (LineKind.WEIGHTS, LineKind.ACTIVATION, LineKind.NON_TORCH, LineKind.GRAPHS)
    pool = (
        ()
        if rank.pool_share is None
        else (
            Worked(
                formula="kv_pool_bytes",
                inputs={
                    "pool_share": rank.pool_share,
                    "budget_bytes": budget,
                    "rank_weight_bytes": of(LineKind.WEIGHTS),
                    "activation_peak": of(LineKind.ACTIVATION),
                    "non_torch_bytes": of(LineKind.NON_TORCH),
                    "counted_graph_bytes": of(LineKind.GRAPHS),
                    "other_bytes": of(*(kind for kind in LineKind if kind not in named)),
                },
                result=float(rank.kv.best),
            ),
        )
    )
    lines = [
        Worked(
            formula=line.formula,
            inputs=dict(line.inputs),
            result=float(line.bytes.best),
            about=f"{line.kind}: {line.note}",
        )
        for line in rank.lines
        if line.formula
    ]
    share = Worked(
        formula="engine_budget_bytes",
        inputs={"memory_share": budget / total, "total_bytes": total},
        result=budget,
    )
    in_blocks = rank.pool_share is not None and kv.num_blocks and kv.block_bytes and kv.window_tokens is None
    return (*lines, share, *pool, *(_worked_blocks(found) if in_blocks else ()))


def _worked_blocks(found: Ledger) -> Iterator[Worked]:
    """From the pool to the log's token count, for pools of equal blocks."""
    kv = found.kv
    yield Worked(
        formula="pool_blocks",
        inputs={"pool_bytes": kv.available_bytes, "block_bytes": kv.block_bytes},
        result=kv.num_blocks,
    )
    gpus = round(kv.reserved_bytes / (kv.num_blocks * kv.block_bytes)) if kv.num_blocks else 0
    if gpus and kv.num_blocks * kv.block_bytes * gpus == kv.reserved_bytes:
        yield Worked(
            formula="reserved_pool_bytes",
            inputs={"blocks": kv.num_blocks, "block_bytes": kv.block_bytes, "gpus": gpus},
            result=kv.reserved_bytes,
        )
    yield from worked_sequences(found)
    yield Worked(
        formula="pool_tokens",
        inputs={
            "sequences_in_pool": kv.max_concurrency,
            "longest_tokens_limit": kv.max_model_len,
        },
        result=kv.tokens,
    )


def worked_running(found: Ledger) -> Iterator[Worked]:
    """Sequences of the ledger's longest length that run at once, and where that is not the pool's count, why."""
    kv = found.kv
    if found.tightest.pool_share is None or not kv.num_blocks:
        return
    if kv.room is not None:
        yield Worked(
            formula="pool_sequences",
            about=kv.room.what,
            inputs={"blocks": float(kv.room.have), "blocks_per_sequence": float(kv.room.each)},
            result=kv.room.have / kv.room.each,
        )
        return
    yield from worked_sequences(found)
    if kv.blocks_while_decoding < kv.blocks_per_sequence <= kv.num_blocks:
        yield Worked(
            formula="running_sequences",
            about="windows give blocks back once a prompt is computed",
            inputs={
                "blocks": float(kv.num_blocks),
                "blocks_per_sequence": float(kv.blocks_per_sequence),
                "blocks_while_decoding": float(kv.blocks_while_decoding),
            },
            result=kv.most_running,
        )


def worked_sequences(found: Ledger) -> Iterator[Worked]:
    """Sequences of the ledger's longest length that its pool holds; an engine that counts tokens has blocks of its page."""
    kv = found.kv
    if found.tightest.pool_share is None or not kv.num_blocks:
        return
    blocks, each = float(kv.num_blocks), float(kv.blocks_per_sequence)
    if not each:
        blocks, each = kv.tokens / kv.block_size, kv.max_model_len / kv.block_size
    yield Worked(
        formula="pool_sequences",
        inputs={"blocks": blocks, "blocks_per_sequence": each},
        result=kv.max_concurrency,
    )
