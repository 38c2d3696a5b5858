"""Values that came from outside, against the plain types of a dataclass's own fields.

`field_kinds` tells the types, `check_value` refuses a value that is not of one, by the field's name. Types are those that
a JSON file can hold: bool, int, float, str, tuples of one of them, objects of numbers, and any of these or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from math import isfinite
from typing import Any, Final, TypeGuard, TypeVar

from calc.errors import InputError

LONGEST_TEXT: Final = 4000
LARGEST_COUNT: Final = 10**15
"""Whole numbers beyond it are no count of anything here, and lose their last digits as floats (from 2^53 = 9e15)."""

Member = TypeVar("Member", bound=StrEnum)


def field_kinds(kind: type) -> dict[str, str]:
    """The annotation of each field of a dataclass, as it stands in the source."""
    return {field.name: str(field.type) for field in fields(kind)}


def check_value(field: str, value: object, kind: str, *, longest: int = LONGEST_TEXT) -> None:
    """Refuse a value that is not of the kind ("int", "float | None", "tuple[str, ...]", "Mapping[str, float]").

    Numbers are finite, whole ones small enough to be exact as floats; a text has at most `longest` characters.
    """
    base = kind.removesuffix("| None").strip()
    if value is None:
        if base == kind:
            raise InputError(field, value, "it cannot be empty")
    elif base.startswith("tuple["):
        _check_list(field, value, base.removeprefix("tuple[").split(",")[0], longest)
    elif base.startswith("Mapping["):
        if not isinstance(value, Mapping):
            raise InputError(field, value, "it must be an object of numbers")
        for name, number in value.items():
            check_value(f"{field}.{name}", number, "float")
    else:
        _check_plain(field, value, base, longest)


def _check_list(field: str, value: object, base: str, longest: int) -> None:
    if not isinstance(value, list | tuple):
        raise InputError(field, value, "it must be a list")
    for one in value:
        check_value(field, one, base, longest=longest)


def _check_plain(field: str, value: object, base: str, longest: int) -> None:
    if base == "bool":
        if not isinstance(value, bool):
            raise InputError(field, value, "it must be true or false")
    elif base == "int":
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LARGEST_COUNT:
            raise InputError(field, value, "it must be a whole number")
    elif base == "float":
        if not is_number(value):
            raise InputError(field, value, "it must be a finite number")
    elif not isinstance(value, str) or len(value) > longest:
        raise InputError(field, value, f"it must be text of at most {longest:,} characters")


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number that a float can hold; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isfinite(value) if isinstance(value, float) else abs(value) < 1e300


def checked_fields(kind: type, data: object, *, what: str) -> dict[str, Any]:
    """The values of an object for the fields of a dataclass, each checked; lists become tuples.

    Raises `InputError` for what is no object, for a field that the dataclass has not, and for a value of another type.
    """
    if not isinstance(data, Mapping):
        raise InputError(what, data, "it must be an object")
    kinds = field_kinds(kind)
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in kinds:
            raise InputError(what, name, f"its fields are {', '.join(kinds)}")
        check_value(f"{what} {name}", value, kinds[name])
        values[name] = tuple(value) if isinstance(value, list) else value
    missing = [
        f.name for f in fields(kind) if f.name not in values and f.default is f.default_factory is MISSING
    ]
    if missing:
        raise InputError(f"{what} {missing[0]}", None, "it must be given")
    return values


def member_of(kinds: type[Member], value: object, field: str) -> Member:
    """The member of an enumeration that a text names; raises `InputError` with the choices."""
    for member in kinds:
        if member.value == value:
            return member
    raise InputError(field, value, f"it must be one of {', '.join(kinds)}")
