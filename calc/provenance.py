"""Where a number comes from, and how far to trust it: `Provenance` and the range `Estimate`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from calc.errors import InputError


class Provenance(StrEnum):
    """The kind of evidence behind a number, from the strongest to the weakest."""

    EXACT = "exact"  # arithmetic over published integers
    MEASURED = "measured"  # on the user's own device or endpoint
    FITTED = "fitted"  # to public measurements of others
    DATASHEET = "datasheet"  # the vendor's own number
    ASSUMED = "assumed"  # ours, with a reason


_WEAKNESS = {kind: rank for rank, kind in enumerate(Provenance)}


def weakest(*kinds: Provenance) -> Provenance:
    """The provenance of a result is that of its weakest input."""
    return max(kinds, key=_WEAKNESS.__getitem__)


def _everywhere(holds: Any) -> bool:
    """Whether a comparison holds; of arrays: in every element. Without importing numpy, so that the CLI starts fast."""
    return bool(holds if isinstance(holds, bool) else holds.all())


def _candidate(value: Any, number: int) -> float:
    return float(value if isinstance(value, int | float) else value.ravel()[number])


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A predicted quantity with its range: `low <= best <= high`, in the unit that the owner's name states.

    Fields are floats, or arrays that broadcast over one candidate axis (batch, context, layout ...).
    """

    low: Any
    best: Any
    high: Any
    provenance: Provenance

    def __post_init__(self) -> None:
        if not (_everywhere(self.low <= self.best) and _everywhere(self.best <= self.high)):
            raise InputError("estimate", (self.low, self.best, self.high), "low <= best <= high must hold")

    @classmethod
    def exactly(cls, value: Any, provenance: Provenance = Provenance.EXACT) -> Estimate:
        """A value without a range."""
        return cls(low=value, best=value, high=value, provenance=provenance)

    @classmethod
    def within(cls, value: Any, factor: float, provenance: Provenance) -> Estimate:
        """`value` known up to a factor: from value/factor to value*factor (factor >= 1)."""
        return cls(low=value / factor, best=value, high=value * factor, provenance=provenance)

    def scaled(self, factor: Any) -> Estimate:
        """The estimate times a non-negative factor."""
        return Estimate(
            low=self.low * factor,
            best=self.best * factor,
            high=self.high * factor,
            provenance=self.provenance,
        )

    def plus(self, other: Estimate) -> Estimate:
        """Sum of two estimates whose errors go the same way (the cautious case)."""
        return Estimate(
            low=self.low + other.low,
            best=self.best + other.best,
            high=self.high + other.high,
            provenance=weakest(self.provenance, other.provenance),
        )

    def candidate(self, number: int = 0) -> Estimate:
        """The estimate of one candidate of the axis, as floats; of an estimate without an axis, itself."""
        low, best, high = (_candidate(value, number) for value in (self.low, self.best, self.high))
        return Estimate(low=low, best=best, high=high, provenance=self.provenance)

    def as_json(self) -> dict[str, float]:
        """`{"low", "best", "high"}` as plain floats."""
        return {"low": float(self.low), "best": float(self.best), "high": float(self.high)}
