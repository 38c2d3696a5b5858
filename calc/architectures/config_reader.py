"""Reads named fields of a config: typed, bounded, and recorded, so that no field is skipped silently.

A config.json is untrusted: numbers arrive as strings, floats or nulls, lists have the wrong length, sections are missing.
Every read either gives a usable value or raises an error that names the field, what was found and what is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from calc.errors import InputError, UnsupportedArchitecture

MAX_SIZE: Final = 2**31  # no width, vocabulary or count of a published model comes near it
MAX_LAYERS: Final = 1024  # Llama 3.1 405B, the deepest model known here, has 126
_LARGEST_FACTOR: Final = 1e6  # of a multiplier or a share: larger ones make no size that is within MAX_SIZE

_CHECK = "Check the config, or paste the layers, heads and sizes by hand."


# Inside the reader the names of the plain types are its methods.
Int = int
Float = float
Bool = bool
Str = str
List = list


class _Required:
    """Marks a field that the config must state."""


REQUIRED: Final = _Required()


class ConfigReader:
    """One section of a config. Nested sections share the record of what was read (`read`, as dotted paths)."""

    def __init__(
        self,
        fields: Mapping[Str, object],
        *,
        model_id: Str,
        path: Str = "",
        read: set[Str] | None = None,
    ) -> None:
        self.fields = fields
        self.model_id = model_id
        self.path = path
        self.read: set[Str] = set() if read is None else read

    # ---- single values ---------------------------------------------------------------------------------------

    def raw(self, *names: Str) -> Any:
        """The first of `names` that is present and not null; two that disagree are refused."""
        found: Any = None
        found_name = ""
        for name in names:
            if name not in self.fields:
                continue
            self.read.add(self.path + name)
            value = self.fields[name]
            if value is None:
                continue
            if found is None:
                found, found_name = value, name
            elif not _same(found, value):
                raise InputError(
                    self.path + name, value, f"{self.path}{found_name} says {found!r}", next_step=_CHECK
                )
        return found

    def int(
        self,
        *names: Str,
        default: Int | _Required = REQUIRED,
        low: Int = 1,
        high: Int = MAX_SIZE,
    ) -> Int:
        """A whole number from `low` to `high`; "32" and 32.0 are read as 32."""
        value = self.raw(*names)
        if value is None:
            if isinstance(default, _Required):
                raise self._missing(names)
            return default
        number = _whole(value)
        if number is None or not low <= number <= high:
            raise InputError(
                self.path + self._present(names),
                value,
                f"it must be a whole number from {low:,} to {high:,}",
                next_step=_CHECK,
            )
        return number

    def optional_int(self, *names: Str, low: Int = 1, high: Int = MAX_SIZE) -> Int | None:
        """A whole number, or None where the config says nothing, null, 0, or a negative stand-in for "off"."""
        value = self.raw(*names)
        if value is None or value is False:
            return None
        number = _whole(value)
        if number is not None and number <= 0 < low:
            return None
        return self.int(*names, low=low, high=high)

    def layers(self, *names: Str) -> Int:
        """The number of layers of a stack, bounded so that a mistyped one cannot fill the memory."""
        return self.int(
            *(names or ("num_hidden_layers", "n_layer", "num_layers", "n_layers")), high=MAX_LAYERS
        )

    def float(self, *names: Str, default: Float | _Required = REQUIRED) -> Float:
        """A factor or a share: a finite number of at most a million."""
        value = self.raw(*names)
        if value is None:
            if isinstance(default, _Required):
                raise self._missing(names)
            return default
        number = _number(value)
        if number is None:
            raise InputError(self.path + self._present(names), value, "it must be a number", next_step=_CHECK)
        if abs(number) > _LARGEST_FACTOR:
            allowed = f"it must be at most {_LARGEST_FACTOR:g}"
            raise InputError(self.path + self._present(names), value, allowed, next_step=_CHECK)
        return number

    def bool(self, *names: Str, default: Bool | _Required = REQUIRED) -> Bool:
        """True or false; 0, 1, "true" and "false" are understood."""
        value = self.raw(*names)
        if value is None:
            if isinstance(default, _Required):
                raise self._missing(names)
            return default
        known = {"true": True, "false": False, "1": True, "0": False}
        meaning = known.get(str(value).lower()) if isinstance(value, Bool | Int | Str) else None
        if meaning is None:
            raise InputError(
                self.path + self._present(names), value, "it must be true or false", next_step=_CHECK
            )
        return meaning

    def str(self, *names: Str, default: Str | _Required = REQUIRED) -> Str:
        """A text."""
        value = self.raw(*names)
        if value is None:
            if isinstance(default, _Required):
                raise self._missing(names)
            return default
        if not isinstance(value, Str):
            raise InputError(self.path + self._present(names), value, "it must be a text", next_step=_CHECK)
        return value

    def choice(self, *names: Str, allowed: tuple[Str, ...], default: Str | _Required = REQUIRED) -> Str:
        """A text out of `allowed`; another one is a structure that is not understood."""
        value = self.str(*names, default=default)
        if value not in allowed:
            raise self.unsupported(self._present(names), f"known are {', '.join(allowed)}")
        return value

    # ---- lists -----------------------------------------------------------------------------------------------

    def list(self, *names: Str, length: Int | None = None) -> List[Any] | None:
        """A list (or None where absent), of `length` entries where one is given."""
        value = self.raw(*names)
        if value is None:
            return None
        if not isinstance(value, List | tuple):
            raise InputError(self.path + self._present(names), value, "it must be a list", next_step=_CHECK)
        if length is not None and len(value) != length:
            raise InputError(
                self.path + self._present(names), value, f"it must have {length} entries", next_step=_CHECK
            )
        if len(value) > 16 * MAX_LAYERS:
            raise InputError(self.path + self._present(names), f"{len(value)} entries", "it is too long")
        return [*value]

    def ints(self, *names: Str, length: Int | None = None, low: Int = 0) -> List[Int] | None:
        """A list of whole numbers."""
        values = self.list(*names, length=length)
        if values is None:
            return None
        numbers = [_whole(value) for value in values]
        if any(number is None or not low <= number <= MAX_SIZE for number in numbers):
            raise InputError(
                self.path + self._present(names),
                values,
                f"its entries must be whole numbers from {low}",
                next_step=_CHECK,
            )
        return [number for number in numbers if number is not None]

    def words(self, *names: Str, allowed: tuple[Str, ...], length: Int | None = None) -> List[Str] | None:
        """A list of texts out of `allowed`, such as layer types."""
        values = self.list(*names, length=length)
        if values is None:
            return None
        for value in values:
            if value not in allowed:
                raise UnsupportedArchitecture(
                    self.path + self._present(names), value, f"known entries are {', '.join(allowed)}"
                )
        return [str(value) for value in values]

    def per_layer(self, *names: Str, layers: Int, default: Int | _Required = REQUIRED) -> List[Int]:
        """A whole number for each layer: given once for all, or as a list."""
        value = self.raw(*names)
        if isinstance(value, List | tuple):
            numbers = self.ints(*names, length=layers, low=1)
            return numbers or []
        return [self.int(*names, default=default)] * layers

    # ---- sections --------------------------------------------------------------------------------------------

    def has(self, name: Str) -> Bool:
        """Whether the config states `name` with something other than null."""
        return self.fields.get(name) is not None

    def section(self, *names: Str) -> ConfigReader | None:
        """A nested config, or None where it is absent, null or empty."""
        value = self.raw(*names)
        if value is None or value == {}:
            return None
        if not isinstance(value, Mapping):
            raise InputError(
                self.path + self._present(names), value, "it must be a nested config", next_step=_CHECK
            )
        return ConfigReader(
            value,
            model_id=self.model_id,
            path=f"{self.path}{self._present(names)}.",
            read=self.read,
        )

    def need_section(self, *names: Str) -> ConfigReader:
        """A nested config that must be there."""
        found = self.section(*names)
        if found is None:
            raise self._missing(names)
        return found

    def overlaid(self, other: Mapping[Str, object]) -> ConfigReader:
        """The same section with the fields of `other` where it does not state them itself."""
        merged = {**other, **{k: v for k, v in self.fields.items() if v is not None}}
        return ConfigReader(merged, model_id=self.model_id, path=self.path, read=self.read)

    # ---- refusals --------------------------------------------------------------------------------------------

    def expect(self, name: Str, *values: object) -> None:
        """Refuse a known field whose value changes the structure in a way that is not understood."""
        value = self.raw(name)
        if value is not None and not any(_same(value, allowed) for allowed in values):
            raise self.unsupported(name, f"understood here: {', '.join(map(repr, values))}")

    def unsupported(self, name: Str, why: Str) -> UnsupportedArchitecture:
        """The refusal of one field's value, ready to raise."""
        return UnsupportedArchitecture(
            self.path + name,
            self.fields.get(name),
            why,
            next_step="Choose the nearest known family, or paste the layers, heads and sizes by hand.",
        )

    def _missing(self, names: tuple[Str, ...]) -> InputError:
        others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
        return InputError(
            self.path + names[0],
            None,
            f"the config does not state it{others} and it is needed",
            next_step=_CHECK,
        )

    def _present(self, names: tuple[Str, ...]) -> Str:
        return next((name for name in names if self.fields.get(name) is not None), names[0])

    def leaves(self) -> Iterator[tuple[Str, object]]:
        """(dotted path, value) of every field, nested sections flattened; lists are leaves."""
        yield from _leaves(self.fields, self.path)


def _leaves(fields: Mapping[str, object], path: str) -> Iterator[tuple[str, object]]:
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield path + str(name), value


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > 32:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None


def _whole(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _same(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    whole, other_whole = _whole(one), _whole(other)
    if whole is not None and other_whole is not None:
        return whole == other_whole
    return one == other
