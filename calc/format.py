"""How numbers read, everywhere: three significant digits, always a unit, GB and GiB told apart, thousands separated.

A quantity is a float or an `Estimate`; an estimate reads as "33 ms (29 to 38)": the unit once, and two digits where
the range is wider than a tenth of the value, because a third would claim more than is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import floor, inf, isfinite, isnan, log10

from calc.provenance import Estimate
from calc.units import DAY_S, GB, GIB, HOUR_S, KB, KIB, MB, MIB, MS, TB, US

DIGITS = 3
DIGITS_OF_A_WIDE_RANGE = 2
WIDE_RANGE = 0.1  # (high - low) / best from which the third digit is noise
UNKNOWN = "unknown"

ONE_DECIMAL = re.compile(r"\.\d(?!\d)")

Quantity = float | Estimate
Scales = tuple[tuple[float, str], ...]

MINUTE_S = 60.0
SECONDS: Scales = (
    (1e-9, "ns"),
    (US, "µs"),
    (MS, "ms"),
    (1.0, "s"),
    (MINUTE_S, "min"),
    (HOUR_S, "h"),
    (DAY_S, "days"),
)
BINARY: Scales = ((1.0, "bytes"), (KIB, "KiB"), (MIB, "MiB"), (GIB, "GiB"), (1024.0 * GIB, "TiB"))
DECIMAL: Scales = ((1.0, "bytes"), (KB, "kB"), (MB, "MB"), (GB, "GB"), (TB, "TB"), (1e3 * TB, "PB"))
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
PARAMETERS: Scales = ((1.0, ""), (1e6, "million"), (1e9, "billion"), (1e12, "trillion"))
# A minute starts at two, an hour at two, a day at two: "90 s" reads better than "1.5 min".
LARGE_STEP = {"min": 2.0, "h": 2.0, "days": 2.0}


def significant(value: float, digits: int = DIGITS) -> str:
    """`value` to `digits` significant digits, thousands separated, without zeros that say nothing."""
    if isnan(value):
        return UNKNOWN
    if value in (inf, -inf):
        return "∞" if value > 0 else "-∞"
    rounded = _rounded(value, digits)
    if rounded == 0:
        return "0"
    decimals = max(0, digits - 1 - floor(log10(abs(rounded))))
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(value: float) -> str:
    """An exact whole number, every digit kept: "433,664"."""
    return f"{round(value):,}"


def plain(value: Quantity, unit: str = "") -> str:
    """A quantity in a unit that is not rescaled: "2,390 tokens/s"."""
    return _reading(value, ((1.0, unit),))


def seconds(value: Quantity) -> str:
    """A duration in the unit that suits it, from ns to days."""
    return _reading(value, SECONDS)


def binary_bytes(value: Quantity) -> str:
    """Memory in powers of 1024: "756 GiB"."""
    return _reading(value, BINARY)


def decimal_bytes(value: Quantity) -> str:
    """Memory in powers of 1000, as vendors and papers count: "26 GB"."""
    return _reading(value, DECIMAL)


def si(value: Quantity, unit: str) -> str:
    """A quantity with an SI prefix: "312 TFLOP/s", "2.04 TB/s"."""
    return _reading(value, tuple((1e3**power, prefix + unit) for power, prefix in enumerate(PREFIXES)))


def parameters(value: Quantity) -> str:
    """A parameter count in words: "8.03 billion"."""
    return _reading(value, PARAMETERS)


def percent(share: Quantity) -> str:
    """A share of one as percent: "81.3%"."""
    hundredfold = share.scaled(100.0) if isinstance(share, Estimate) else 100.0 * share
    return _reading(hundredfold, ((1.0, "%"),), glue="")


def usd(value: Quantity) -> str:
    """US dollars: "$0.42", "$7.80", "$1,230"; an estimate as "$0.42 (0.38 to 0.47)"."""
    return "$" + ONE_DECIMAL.sub(r"\g<0>0", _reading(value, ((1.0, ""),)))


def factor(value: Quantity) -> str:
    """A ratio: "2.8x"."""
    return _reading(value, ((1.0, "x"),), glue="")


def plural(number: float, one: str, many: str = "") -> str:
    """A count with its noun: "1 GPU", "3 GPUs"."""
    return f"{count(number)} {one if round(number) == 1 else many or one + 's'}"


def optional(value: Quantity | None, reading: Callable[[Quantity], str], absent: str = UNKNOWN) -> str:
    """`reading(value)`, or `absent` where there is no value."""
    return absent if value is None else reading(value)


def _rounded(value: float, digits: int) -> float:
    if value == 0 or not isfinite(value):
        return value
    return float(f"{value:.{digits - 1}e}")


def _reading(value: Quantity, scales: Scales, glue: str = " ") -> str:
    if not isinstance(value, Estimate):
        scale, unit = _scale_for(float(value), scales, DIGITS)
        return _joined(significant(value / scale), unit, glue)
    low, best, high = float(value.low), float(value.best), float(value.high)
    if low == high:
        return _reading(best, scales, glue)
    wide = not isfinite(high) or high - low > WIDE_RANGE * abs(best)
    digits = DIGITS_OF_A_WIDE_RANGE if wide else DIGITS
    scale, unit = _scale_for(best, scales, digits)
    ends = f"({significant(low / scale, digits)} to {significant(high / scale, digits)})"
    return f"{_joined(significant(best / scale, digits), unit, glue)} {ends}"


def _joined(number: str, unit: str, glue: str) -> str:
    return number if not unit or number == UNKNOWN else f"{number}{glue}{unit}"


def _scale_for(value: float, scales: Scales, digits: int) -> tuple[float, str]:
    """The largest scale of which the rounded value is at least one (two for minutes and longer)."""
    chosen = scales[0] if value and isfinite(value) else _unscaled(scales)
    if value and isfinite(value):
        for scale, unit in scales:
            if abs(_rounded(value / scale, digits)) >= LARGE_STEP.get(unit, 1.0):
                chosen = (scale, unit)
    return chosen


def _unscaled(scales: Scales) -> tuple[float, str]:
    """The base unit, for zero and for what has no size."""
    return next(((scale, unit) for scale, unit in scales if scale == 1.0), scales[0])
