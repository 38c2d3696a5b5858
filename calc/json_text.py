"""JSON: one reader for every file, answer and link that we did not write ourselves a moment ago, and what we write strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite, isinf
from typing import Any, Final

# What `parse_json` raises for text that is no JSON: also for nesting that exhausts the stack.
NOT_JSON: Final = (ValueError, RecursionError)

LONGEST_WHOLE_NUMBER: Final = 300
"""Digits. A longer one has no value as a float (the largest is 1.8e308), so that any arithmetic on it would fail."""


def parse_json(text: str | bytes, *, finite: bool = False) -> Any:
    """The value of a JSON text, or one of `NOT_JSON`.

    Refused beside what is no JSON: whole numbers of more than 300 digits, and halves of characters (lone surrogates).
    `finite`: NaN and Infinity, which Python writes and reads though JSON has no such numbers, are refused, and so is a
    number that overflows to infinity (1e999). For our own formats, which never hold them; files of others may.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    value = (_FINITE if finite else _ANY).decode(text)
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()  # half a character: no screen, file or pipe takes it
    return value


def json_of(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON that every reader takes: a number that is none (a queue without end) is null there."""
    return json.dumps(_with_nulls(value), indent=indent, default=str)


def _with_nulls(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _with_nulls(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_with_nulls(held) for held in value]
    return value


def _whole_number(digits: str) -> int:
    if len(digits) > LONGEST_WHOLE_NUMBER:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def _finite_number(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text[:20]} is beyond every number")
    return number


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


# Made once: `json.loads` with readers of numbers of its own would make a decoder for every line of a file.
_ANY: Final = json.JSONDecoder(parse_int=_whole_number)
_FINITE: Final = json.JSONDecoder(
    parse_int=_whole_number, parse_constant=_no_number, parse_float=_finite_number
)
