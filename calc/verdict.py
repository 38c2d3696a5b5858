"""The answer to "does it work?": a result, never an exception."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite


class Wall(StrEnum):
    """What stops a configuration."""

    NONE = "none"
    WEIGHT_MEMORY = "weight memory"
    KV_MEMORY = "kv memory"
    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "end to end"
    THROUGHPUT = "throughput"
    POWER = "power"
    AVAILABILITY = "availability"
    LAYOUT = "layout"
    FORMAT = "format"
    CONTEXT = "context"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One nearby change that would make a failing configuration work.

    `text` is a sentence for people; `settings` are the scenario fields that it sets, so that a page can apply it.
    """

    text: str
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a configuration works; if not: which wall, short by how much, and the nearest changes that would.

    `short_by` is in the unit of the wall: bytes for memory, seconds for latency targets, requests/s for throughput,
    tokens for the context; for devices, money and power a share of the limit, infinite where that is 0 or what would be
    used is not known (null in JSON, which has no infinity).
    """

    fits: bool
    wall: Wall = Wall.NONE
    short_by: float = 0.0
    reason: str = ""
    nearest: tuple[Change, ...] = ()

    def as_json(self) -> dict[str, object]:
        return {
            "fits": self.fits,
            "wall": str(self.wall),
            "short_by": self.short_by if isfinite(self.short_by) else None,
            "reason": self.reason,
            "nearest": [{"text": c.text, "settings": dict(c.settings)} for c in self.nearest],
        }
