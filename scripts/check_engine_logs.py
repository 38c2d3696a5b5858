"""Prints predicted against logged for every public start-up log, and why a row could not be used.

python scripts/check_engine_logs.py [--cases DIR] [--reference DIR]
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from calc.units import GIB
from presets.engine_log_cards import card_of
from presets.engine_log_check import RowResult, check_kv, check_pool, check_start, check_terms, check_weights
from presets.engine_logs import EngineLog, read_logs
from scripts.reference_data import folders


def main() -> None:
    cases, reference = folders(__doc__)
    logs = read_logs(cases)
    configs = reference / "configs"
    kv = [(log, check_kv(log, configs)) for log in logs if {"kv", "needed"} & set(log.roles)]
    report("KV arithmetic from the logged bytes", kv)
    report(
        "Weights per GPU",
        [
            (log, check_weights(log, configs))
            for log in logs
            if log.weights_bytes or log.stored_error is not None
        ],
    )
    terms = [log for log in logs if log.activation_bytes or log.non_torch_bytes]
    report("Activation and memory outside torch", [(log, check_terms(log, configs)) for log in terms])
    report(
        "KV pool from the settings alone", [(log, check_pool(log, configs)) for log in logs if log.kv_bytes]
    )
    pools = [(log, check_pool(log, configs)) for log in logs if log.kv_bytes]
    for title, large in (("39 GiB and more", True), ("smaller", False)):
        errors = sorted(abs(r.worst.error) for log, r in pools if r.worst and is_large(log) == large)
        print(
            f"cards of {title}: {len(errors)} rows, median {100 * statistics.median(errors):.2f}%, "
            f"90th {100 * percentile(errors, 0.9):.2f}%, max {100 * errors[-1]:.1f}%"
        )
    starts(logs, configs)


def is_large(log: EngineLog) -> bool:
    return float(card_of(log).cuda_memory.best) >= 39 * GIB


def percentile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def starts(logs: tuple[EngineLog, ...], configs: Path) -> None:
    print("\n## Starts and refusals\n")
    results = [check_start(log, configs) for log in logs if "refusal" in log.roles or log.kv_bytes]
    for failed in (True, False):
        rows = [r for r in results if r.started != failed]
        known = [r for r in rows if r.predicted is not None]
        right = [r for r in known if r.predicted == r.started]
        print(
            f"{'refused' if failed else 'started'}: {len(right)} of {len(known)} predicted so, {len(rows) - len(known)} not usable"
        )
        for r in rows:
            if r.predicted is None:
                print(f"  {r.case_id}  not used: {r.how}")
            elif r.predicted != r.started:
                print(f"  {r.case_id}  WRONG, {r.how}")


def report(title: str, rows: list[tuple[EngineLog, RowResult]]) -> None:
    print(f"\n## {title}\n")
    errors = []
    for log, result in rows:
        if result.unusable:
            print(f"{log.case_id}  not used: {result.unusable}")
            continue
        worst = result.worst
        assert worst is not None
        errors.append(abs(worst.error))
        mark = "" if abs(worst.error) <= max(0.005, worst.rounding) else "  MISS"
        for c in result.comparisons:
            scale = GIB if c.logged > 1e7 and c.quantity not in ("tokens", "blocks", "concurrency") else 1.0
            print(
                f"{c.case_id}  {c.quantity:14s} {c.predicted / scale:16,.3f} {c.logged / scale:16,.3f} {100 * c.error:+8.3f}%"
                f"  (rounding {100 * c.rounding:.3f}%)  {log.model[:40]}{mark}"
            )
    if errors:
        errors.sort()
        print(
            f"\n{len(errors)} rows used, {len(rows) - len(errors)} not; worst quantity of each row: "
            f"median {100 * statistics.median(errors):.3f}%, 90th {100 * errors[int(0.9 * len(errors))]:.3f}%, "
            f"max {100 * errors[-1]:.3f}%"
        )


if __name__ == "__main__":
    main()
