"""Every check of every public start-up log, as the plain table that is bundled (`measurements/engine_memory.json`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from calc.model import ModelSpec
from calc.quantization import weight_bytes
from calc.units import GIB
from presets.engine_log_cards import card_of
from presets.engine_log_check import (
    Comparison,
    RowResult,
    check_kv,
    check_pool,
    check_start,
    check_terms,
    check_weights,
)
from presets.engine_log_models import spec_of
from presets.engine_log_settings import quantization_of
from presets.engine_logs import EngineLog, readings, release_of

KV, WEIGHTS, TERMS, POOL = "kv arithmetic", "weights", "activation and outside torch", "pool"
LARGE_CARD_BYTES = 39 * GIB
PLAIN_FORMATS = ("bf16", "fp16", "fp32", "fp8", "fp8-channel", "fp8-block")

Json = dict[str, Any]


def kv_group(log: EngineLog, configs: Path) -> str:
    """Whether every flag that the pool depends on was shown."""
    del configs
    return (
        "flags inferred" if (r := readings().get(log.case_id)) is not None and r.inferred else "flags shown"
    )


def weights_group(log: EngineLog, configs: Path) -> str:
    """16 bit and FP8, or any other format, by what most bytes are stored in."""
    spec = spec_of(log, configs)
    if not isinstance(spec, ModelSpec):
        return ""
    if "sglang" in log.engine:
        return "free memory taken by loading"
    by_format = weight_bytes(spec, quantization_of(log, spec)).by_format
    plain = all(name in PLAIN_FORMATS for name in by_format)
    return "16 bit and fp8" if plain else "other formats"


def pool_group(log: EngineLog, configs: Path) -> str:
    """The card's size, below which rounding and constants weigh more; boards that share memory apart."""
    del configs
    card = card_of(log)
    if card.memory_type.startswith("LPDDR"):
        return "memory shared with the host"
    total = log.total_bytes or float(card.cuda_memory.best)
    return "cards of 39 GiB and more" if total >= LARGE_CARD_BYTES else "smaller cards"


def table(logs: Iterable[EngineLog], configs: Path) -> Json:
    """Comparisons, rows that could not be used with the reason, and starts, all as plain values."""
    logs = tuple(logs)
    checks: list[
        tuple[
            str,
            Callable[[EngineLog], bool],
            Callable[[EngineLog, Path], RowResult],
            Callable[[EngineLog, Path], str],
        ]
    ] = [
        (KV, lambda log: bool({"kv", "needed"} & set(log.roles)), check_kv, kv_group),
        (
            WEIGHTS,
            lambda log: log.weights_bytes is not None or log.stored_error is not None,
            check_weights,
            weights_group,
        ),
        (TERMS, lambda log: bool(log.activation_bytes or log.non_torch_bytes), check_terms, kv_group),
        (POOL, lambda log: log.kv_bytes is not None, check_pool, pool_group),
    ]
    rows: list[Json] = []
    unused: list[Json] = []
    for name, belongs, check, group in checks:
        for log in filter(belongs, logs):
            result = check(log, configs)
            if result.unusable:
                unused.append({"case_id": log.case_id, "check": name, "reason": result.unusable})
                continue
            rows += [
                _row(log, name, comparison.quantity, group(log, configs))
                | {
                    "predicted": float(f"{comparison.predicted:.7g}"),
                    "logged": float(f"{comparison.logged:.7g}"),
                    "rounding": float(f"{comparison.rounding:.3g}"),
                }
                | _range(comparison)
                for comparison in result.comparisons
            ]
    found = [check_start(log, configs) for log in logs if "refusal" in log.roles or log.kv_bytes]
    starts = [
        {"case_id": s.case_id, "started": s.started, "predicted": s.predicted, "how": s.how} for s in found
    ]
    return {"rows": rows, "unused": unused, "starts": starts}


def _range(comparison: Comparison) -> Json:
    if comparison.low is None or comparison.high is None:
        return {}
    return {"low": float(f"{comparison.low:.7g}"), "high": float(f"{comparison.high:.7g}")}


def _row(log: EngineLog, check: str, quantity: str, group: str) -> Json:
    reading = readings().get(log.case_id)
    return {
        "case_id": log.case_id,
        "check": check,
        "quantity": quantity,
        "group": group,
        "engine": log.engine,
        "version": release_of(log) or log.version,
        "model": log.model,
        "card": log.gpu,
        "source": log.source,
        "miss": reading.miss if reading is not None else "",
        "inferred": bool(reading is not None and reading.inferred),
    }
