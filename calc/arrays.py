"""Numbers that may be arrays: the type, what a formula may refuse, and whole counts.

A closed form takes floats, or arrays that broadcast over a candidate axis (batch, context, card ...), and returns the
same kind. Bad values are refused by their name, with the first one that was found.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from calc.errors import InputError

Numbers: TypeAlias = Any
"""A float, or an array of floats; `Any`, because one type for both would have to be unpacked by every caller."""

ROUNDING = 1e-9  # a quotient this close to a whole number is that number, whatever its last bits say
LAST_BITS = 4 * float(np.finfo(float).eps)  # the same for large ones, relative


def positive(**fields: Numbers) -> None:
    """Refuse what is not above zero (infinity passes: a limit that is not there)."""
    _refuse(fields, lambda a: a > 0, "it must be a positive number")


def positive_finite(**fields: Numbers) -> None:
    """Refuse what is not above zero and finite."""
    _refuse(fields, lambda a: (a > 0) & np.isfinite(a), "it must be a positive, finite number")


def not_negative(**fields: Numbers) -> None:
    """Refuse what is below zero or not finite."""
    _refuse(fields, lambda a: (a >= 0) & np.isfinite(a), "it must be zero or a positive, finite number")


def share(**fields: Numbers) -> None:
    """Refuse what is not a share: from 0 to 1, both included."""
    _refuse(fields, lambda a: (a >= 0) & (a <= 1), "it must be a share from 0 to 1")


def share_below_one(**fields: Numbers) -> None:
    """Refuse what is not a share from 0 to below 1."""
    _refuse(fields, lambda a: (a >= 0) & (a < 1), "it must be a share from 0 to below 1")


def positive_share(**fields: Numbers) -> None:
    """Refuse what is not a share above 0, up to 1."""
    _refuse(fields, lambda a: (a > 0) & (a <= 1), "it must be a share above 0 and at most 1")


def floor_count(value: Numbers) -> Numbers:
    """The whole number below `value`; an int for a scalar, int64 for an array.

    Infinity stays what it is (no limit), as a float.
    """
    array = np.asarray(value, dtype=float)
    return _counts(_snapped(array, np.floor), array)


def ceil_count(value: Numbers) -> Numbers:
    """The whole number above `value`; an int for a scalar, int64 for an array. Infinity stays infinity."""
    array = np.asarray(value, dtype=float)
    return _counts(_snapped(array, np.ceil), array)


def scalar(value: Numbers) -> Numbers:
    """A 0-d result as a plain float; arrays as they are."""
    return float(value) if np.ndim(value) == 0 else value


def first(value: Numbers) -> float:
    """The first candidate of an array, such as one that holds a single one; a number as it is."""
    return float(np.ravel(np.asarray(value))[0])


def largest_count(holds: Callable[[int], bool], *, up_to: int) -> int:
    """The largest whole number from 1 to `up_to` for which `holds`, which fails for all above it; 0 where it never does."""
    return bisect(range(1, up_to + 1), False, key=lambda count: not holds(count))


def _snapped(array: Any, rounding: Any) -> Any:
    nearest = np.rint(array)
    with np.errstate(invalid="ignore"):  # infinity less infinity: not near, rounded below
        near = np.abs(array - nearest) <= ROUNDING + LAST_BITS * np.abs(array)
    return np.where(near & np.isfinite(array), nearest, rounding(array))


def _counts(whole: Any, original: Any) -> Numbers:
    if not np.all(np.isfinite(original)):
        return scalar(whole)
    return int(whole) if whole.ndim == 0 else whole.astype(np.int64)


def _refuse(fields: dict[str, Numbers], holds: Any, allowed: str) -> None:
    for name, value in fields.items():
        array = np.atleast_1d(_as_float(name, value))
        good = np.asarray(holds(array))
        if not good.all():
            raise InputError(name, array[~good].flat[0].item(), allowed)


def _as_float(name: str, value: Numbers) -> Any:
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(name, value, "it must be a number, or an array of numbers") from error
