"""What the public start-up logs say about the ledgers, as the text that docs/accuracy.md carries between two marks."""

from __future__ import annotations

from calc.units import GIB
from presets import engine_memory
from presets.engine_memory import MemoryRow

BEGIN = "<!-- written by scripts/write_engine_memory.py: begin -->"
END = "<!-- written by scripts/write_engine_memory.py: end -->"
FAR_POOL = 0.05
FAR_WEIGHTS = 0.02
EXACT_SHARE = 0.005  # KV rows are listed where they are further off than this and than their own rounding

# Check and group -> how the table calls it, in its order.
GROUPS = {
    (
        "kv arithmetic",
        "flags shown",
    ): "KV arithmetic from the logged bytes: tokens, blocks, concurrency, needed GiB",
    ("kv arithmetic", "flags inferred"): "the same, a flag concluded from the pool itself",
    ("weights", "16 bit and fp8"): "weights per GPU, 16 bit and FP8",
    ("weights", "other formats"): "weights per GPU, other formats",
    ("weights", "free memory taken by loading"): "SGLang's free-memory difference while loading",
    ("pool", "cards of 39 GiB and more"): "KV pool from the settings alone, cards of 39 GiB and more",
    ("pool", "smaller cards"): "the same, smaller cards",
    ("pool", "memory shared with the host"): "the same, boards that share memory with the host",
}


def report() -> str:
    """Tables of errors, starts, misses and rows that could not be used, of the bundled comparisons."""
    parts = (BEGIN, _groups(), _starts(), _misses(), _unused(), END)
    return "\n\n".join(parts)


def _groups() -> str:
    errors = {(found.check, found.group): found for found in engine_memory.group_errors()}
    lines = ["| what | rows | median | 90th | largest |", "|---|---|---|---|---|"]
    for key, name in GROUPS.items():
        found = errors[key]
        lines.append(
            f"| {name} | {found.rows} | {found.median:.2%} | {found.p90:.1%} | {found.largest:.1%} |"
        )
    return "\n".join(lines)


def _starts() -> str:
    starts = engine_memory.starts()
    told = []
    for started, name in ((False, "Refusals"), (True, "starts")):
        judged = [s for s in starts if s.started is started and s.predicted is not None]
        right = [s for s in judged if s.predicted is s.started]
        wrong = [s.case_id for s in judged if s not in right]
        told.append(
            f"{name}: {len(right)} of {len(judged)} predicted"
            + (f" (not: {', '.join(wrong)})" if wrong else "")
        )
    open_ones = [s.case_id for s in starts if "range covers" in s.how]
    pools = [row for row in engine_memory.rows() if row.inside is not None]
    outside = [row.case_id for row in pools if not row.inside]
    exact = sorted(
        {
            row.case_id
            for row in engine_memory.rows()
            if row.check == "kv arithmetic" and abs(row.error) > max(EXACT_SHARE, row.rounding)
        }
    )
    return (
        f"{'; '.join(told)}. Open, because the stated range covers both: {', '.join(open_ones) or 'none'}.\n"
        f"{len(pools) - len(outside)} of {len(pools)} logged pools lie inside the range that the ledger states "
        f"(not: {', '.join(outside)}).\n"
        "Logs print two decimals of GiB; KV rows further off than half a per cent and than their own rounding: "
        f"{', '.join(exact) or 'none'}."
    )


def _misses() -> str:
    far = [
        row
        for row in engine_memory.rows()
        if (row.check == "pool" and abs(row.error) > FAR_POOL)
        or (row.check == "weights" and abs(row.error) > FAR_WEIGHTS)
        or (row.check == "kv arithmetic" and abs(row.error) > max(EXACT_SHARE, row.rounding))
    ]
    lines = [
        f"Pools further off than {FAR_POOL:.0%}, weights further off than {FAR_WEIGHTS:.0%}, and KV rows named above:",
        "",
        "| log | model | what | predicted | logged | error | kind |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in far:
        predicted, logged = _size(row, row.predicted), _size(row, row.logged)
        lines.append(
            f"| {row.case_id} | {row.model} | {row.quantity} | {predicted} | {logged} | {row.error:+.1%} | {_kind(row)} |"
        )
    return "\n".join(lines)


def _kind(row: MemoryRow) -> str:
    if row.miss:
        return row.miss
    return f"{abs(row.predicted - row.logged) / GIB:.2f} GiB"


def _size(row: MemoryRow, value: float) -> str:
    counted = row.quantity in ("tokens", "blocks", "concurrency")
    return f"{value:,.0f}" if counted else f"{value / GIB:.2f} GiB"


def _unused() -> str:
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in engine_memory.unused():
        reasons.setdefault((row.check, row.reason), []).append(row.case_id)
    lines = ["Rows that could not be used:", ""]
    lines += [
        f"- {check}: {reason}: {', '.join(cases)}." for (check, reason), cases in sorted(reasons.items())
    ]
    return "\n".join(lines)


def with_report(text: str) -> str:
    """A document with the part between the marks written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{report()}{after}"
