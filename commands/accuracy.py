"""`ridgebeam accuracy`: predicted against measured for every bundled measurement, errors by group, the misses first."""

from __future__ import annotations

import argparse
from typing import Any

from commands.arguments import OK, emit, verb

SHOWN = 15


def add(verbs: Any) -> None:
    verb(verbs, "accuracy", run, "predicted against measured for every bundled measurement")


def run(arguments: argparse.Namespace) -> int:
    from presets import accuracy, engine_memory

    rows = accuracy.comparisons()
    groups = accuracy.by_group([row for row in rows if row.clean])
    report = accuracy.held_out()
    record = {
        "held_out": report,
        "groups": groups,
        "other_groups": accuracy.by_group([row for row in rows if not row.clean]),
        "measurements": [row.as_json() for row in rows],
        "unmodelled": list(accuracy.unmodelled()),
        "engine_memory": engine_memory.as_json(),
    }
    emit(arguments, record, [*_lines(report, groups, len(rows)), *_memory_lines()])
    return OK


def _lines(report: Any, groups: list[dict[str, Any]], count: int) -> list[str]:
    lines = ["TPOT on data that the fit did not see (mean error)"]
    for name in ("group held out", "GPU held out", "model held out"):
        errors = report[name]
        shown = ", ".join(
            f"{klass} {100 * errors[klass]['mean']:.1f}%" for klass in ("dense", "experts", "latent")
        )
        lines.append(f"  {name:<18}{shown}; 90% within {100 * errors['all']['p90']:.0f}%")
    lines.append(f"shipped profiles on {count} bundled figures, worst groups first")
    lines += [
        f"  {100 * g['mean_error']:5.1f}%  bias {100 * g['bias']:+5.1f}%  in range {100 * g['inside']:3.0f}%  "
        f"{g['points']:4d}  {g['quantity']}: {g['group']}"
        for g in groups[:SHOWN]
    ]
    return lines


def _memory_lines() -> list[str]:
    from presets import engine_memory

    lines = ["engine memory on public start-up logs (median, 90th percentile of the error)"]
    return lines + [
        f"  {100 * g.median:5.2f}%  {100 * g.p90:6.1f}%  {g.rows:4d}  {g.check}: {g.group}"
        for g in engine_memory.group_errors()
    ]
