"""Predicted against logged memory of public start-up logs, as bundled: what the Accuracy page and `ridgebeam accuracy` read.

`measurements/engine_memory.json` is written by scripts/write_engine_memory.py; a test recomputes it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

FILE = Path(__file__).parent / "measurements" / "engine_memory.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """One quantity of one log. `check`: kv arithmetic, weights, terms or pool. Bytes, tokens, blocks or sequences.

    `rounding` is the relative half digit of what was printed; `miss` the kind of a known miss; `inferred`: a flag was
    concluded from the pool itself. `low` and `high`: the range stated with a predicted pool.
    """

    case_id: str
    check: str
    quantity: str
    predicted: float
    logged: float
    rounding: float
    group: str
    engine: str
    version: str
    model: str
    card: str
    source: str
    miss: str
    inferred: bool
    low: float | None = None
    high: float | None = None

    @property
    def inside(self) -> bool | None:
        """Whether what was logged, to its last digit, lies in the stated range; None where no range was."""
        if self.low is None or self.high is None:
            return None
        half_digit = self.rounding * abs(self.logged)
        return self.low - half_digit <= self.logged <= self.high + half_digit

    @property
    def error(self) -> float:
        """Predicted over logged, less one."""
        return self.predicted / self.logged - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedRow:
    """A log that could not be used for a check, and why."""

    case_id: str
    check: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRow:
    """Whether an engine started and what was predicted; None: it could not be."""

    case_id: str
    started: bool
    predicted: bool | None
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupError:
    """Errors of one group: how many rows, the median, the 90th percentile and the largest, as shares."""

    check: str
    group: str
    rows: int
    median: float
    p90: float
    largest: float


@cache
def _content() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return loaded


@cache
def rows() -> tuple[MemoryRow, ...]:
    """Every comparison."""
    return tuple(MemoryRow(**entry) for entry in _content()["rows"])


@cache
def unused() -> tuple[UnusedRow, ...]:
    """Every row that a check could not use."""
    return tuple(UnusedRow(**entry) for entry in _content()["unused"])


@cache
def starts() -> tuple[StartRow, ...]:
    """Every start and refusal."""
    return tuple(StartRow(**entry) for entry in _content()["starts"])


def group_errors() -> tuple[GroupError, ...]:
    """Errors by check and group; of a row with several quantities the worst one counts."""
    worst: dict[tuple[str, str, str], float] = {}
    for row in rows():
        key = (row.check, row.group, row.case_id)
        worst[key] = max(worst.get(key, 0.0), abs(row.error))
    groups: dict[tuple[str, str], list[float]] = {}
    for (check, group, _), error in worst.items():
        groups.setdefault((check, group), []).append(error)
    found = []
    for (check, group), errors in groups.items():
        errors.sort()
        found.append(
            GroupError(
                check=check,
                group=group,
                rows=len(errors),
                median=median(errors),
                p90=errors[min(len(errors) - 1, int(0.9 * len(errors)))],
                largest=errors[-1],
            )
        )
    return tuple(found)


def as_json() -> dict[str, Any]:
    """Groups, every comparison with its error, rows that were not used, and starts, as plain values."""
    return {
        "groups": [asdict(group) for group in group_errors()],
        "comparisons": [asdict(row) | {"error": row.error} for row in rows()],
        "not_used": [asdict(row) for row in unused()],
        "starts": [asdict(row) for row in starts()],
    }
