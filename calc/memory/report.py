"""A ledger as the plain dictionary that `ridgebeam fit --json` prints: bytes and tokens as integers."""

from __future__ import annotations

from typing import Any

from calc.layout import Layout
from calc.memory.engines.ledger import Ledger, LineKind, RankLedger
from calc.provenance import Estimate

Json = dict[str, Any]

# Fields of "per_gpu" and the lines that they sum.
PER_GPU = (
    ("weights_bytes", (LineKind.WEIGHTS,)),
    ("adapter_bytes", (LineKind.ADAPTERS,)),
    ("activation_bytes", (LineKind.ACTIVATION,)),
    ("non_torch_bytes", (LineKind.NON_TORCH,)),
    ("graph_bytes", (LineKind.GRAPHS,)),
    ("state_bytes", (LineKind.STATES,)),
    ("draft_bytes", (LineKind.DRAFTS,)),
)


def fit_json(ledger: Ledger, layout: Layout) -> Json:
    """The contract of the verb `fit`; `per_gpu` is the tightest rank, `ranks` all of them with ranges."""
    kv = ledger.kv
    return {
        "fits": ledger.verdict.fits,
        "verdict": ledger.verdict.as_json(),
        "undecided": ledger.undecided,
        "engine": str(ledger.engine),
        "engine_version": ledger.version,
        "layout": layout.label,
        "per_gpu": per_gpu_json(ledger.tightest),
        "kv": {
            "logical_bytes_per_token": kv.logical_bytes_per_token,
            "reserved_bytes": round(kv.reserved_bytes),
            "available_bytes": round(kv.available_bytes),
            "block_size": kv.block_size,
            "block_bytes": kv.block_bytes,
            "num_blocks": kv.num_blocks,
            "tokens": kv.tokens,
            "printed_tokens": kv.printed_tokens,
            "printed_tokens_range": printed_range(ledger),
            "max_model_len": kv.max_model_len,
            "max_concurrency": kv.max_concurrency,
            "most_running": kv.most_running,
            "needed_bytes_for_max_len": kv.needed_bytes,
            "longest_length": kv.longest_length,
            "padding_layers": kv.padding_layers,
            "window_tokens": kv.window_tokens,
            "state_slots": kv.state_slots,
        },
        "ranks": [rank_json(rank) for rank in ledger.ranks],
        "assumptions": list(ledger.assumptions),
    }


def printed_range(ledger: Ledger) -> Json:
    """The printed tokens at the ends of the pool's range; tokens go with bytes."""
    pool, printed = ledger.tightest.kv, ledger.kv.printed_tokens
    best = float(pool.best)
    if best <= 0:
        return {"low": 0, "high": printed}
    ends = (max(0.0, float(pool.low)) / best, float(pool.high) / best)
    return {"low": int(printed * ends[0]), "high": int(printed * ends[1])}


def per_gpu_json(rank: RankLedger) -> Json:
    """Best estimates of one GPU, in bytes."""
    record: Json = {
        "total_bytes": round(rank.total.best),
        "budget_bytes": round(rank.budget.best),
        **{name: round(sum(rank.bytes_of(kind) for kind in kinds)) for name, kinds in PER_GPU},
        "kv_bytes": round(rank.kv.best),
        "left_bytes": round(rank.left.best),
    }
    return record


def rank_json(rank: RankLedger) -> Json:
    """One rank with the range, provenance and reason of every line."""
    return {
        "label": rank.label,
        "gpus": rank.gpus,
        "total": _estimate_json(rank.total),
        "budget": _estimate_json(rank.budget),
        "lines": [
            {
                "kind": str(line.kind),
                "counted": line.counted,
                "note": line.note,
                **_estimate_json(line.bytes),
            }
            for line in rank.lines
        ],
        "kv": _estimate_json(rank.kv),
        "left": _estimate_json(rank.left),
    }


def _estimate_json(estimate: Estimate) -> Json:
    return {
        "low": round(estimate.low),
        "best": round(estimate.best),
        "high": round(estimate.high),
        "provenance": str(estimate.provenance),
    }
