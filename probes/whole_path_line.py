"""One number of the whole path's tables, measured beside predicted."""

from __future__ import annotations

from dataclasses import dataclass

WHOLE_PATH = "whole_path"  # the probe's name in a run


@dataclass(frozen=True, slots=True, kw_only=True)
class WholePathLine:
    """predicted None: the run does not hold what a prediction needs, or nothing is predicted."""

    table: str
    what: str
    measured: float
    predicted: float | None
    unit: str
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return None if not self.predicted else self.measured / self.predicted
