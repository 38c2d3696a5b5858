"""What was promised: `Slo`, targets for TTFT, TPOT and end to end, as means or at a percentile."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from calc.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Latency targets in seconds; None: no such target. `percentile` None: the targets are means."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    percentile: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value > 0):
                raise InputError(name, value, "a target is a positive number of seconds")
        if self.percentile is not None and not 0 < self.percentile < 100:
            raise InputError("percentile", self.percentile, "it must lie between 0 and 100")
