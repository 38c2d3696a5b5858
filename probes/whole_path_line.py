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

    def times(self, other: WholePathLine) -> float:
        """The measurement over another line's."""
        return self.measured / other.measured

    @property
    def slowness(self) -> float | None:
        """Times as slow as predicted, whether a time or a rate was measured."""
        if not self.ratio:
            return None
        return self.ratio if self.unit == "s" else 1.0 / self.ratio

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return None if not self.predicted else self.measured / self.predicted
