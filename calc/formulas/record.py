"""One formula as the Methods page prints it and as "Show the maths" fills it: `Formula`, `Symbol`, `Example`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor, isfinite, log10
from string import Template

import numpy as np

from calc.arrays import Numbers
from calc.errors import InputError
from calc.format import binary_bytes, count, decimal_bytes, seconds, si, significant, usd

EXACT_BELOW = 1e7  # whole numbers below it are written with every digit
RAISED = re.compile(r"\$\{(\w+)\}(?=\^)")  # a parameter of a template that a power follows
DIGITS = 5  # of inputs in a filled formula; a reader can check the arithmetic with them


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A letter of a formula: the parameter it stands for, how it is written, what it means, its unit.

    `unit` is a product of base units as `pint` reads them ("byte/second"); "1" for counts and shares.
    """

    name: str
    latex: str
    meaning: str
    unit: str = "1"


def in_seconds(name: str, latex: str, meaning: str) -> Symbol:
    """The symbol of a time."""
    return Symbol(name=name, latex=latex, meaning=meaning, unit="second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Inputs and a result that somebody else published; `rel` is how far their rounding may be off."""

    inputs: Mapping[str, float]
    value: float
    rel: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A formula, the function that computes it, and a worked example.

    `template` is the right-hand side in LaTeX with a `${parameter}` for each parameter of the function. `source` and
    `ignores` are those of the function's docstring, so that they have one home.
    """

    id: str
    title: str
    topic: str
    result: Symbol
    template: str
    parameters: tuple[Symbol, ...]
    function: Callable[..., Numbers]
    example: Example

    @property
    def latex(self) -> str:
        """The formula in letters."""
        letters = {symbol.name: symbol.latex for symbol in self.parameters}
        return f"{self.result.latex} = {Template(self.template).substitute(letters)}"

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The result's symbol, then those of the parameters."""
        return (self.result, *self.parameters)

    @property
    def source(self) -> str:
        return _docstring_part(self.function, "Source")

    @property
    def ignores(self) -> str:
        return _docstring_part(self.function, "Ignores")

    def value(self, inputs: Mapping[str, Numbers]) -> Numbers:
        """The function's result for `inputs`, which may hold more than the formula needs."""
        return self.function(**self.chosen(inputs))

    def chosen(self, inputs: Mapping[str, Numbers]) -> dict[str, Numbers]:
        """Those of `inputs` that the formula takes; refuses by name when one is missing."""
        missing = [symbol.name for symbol in self.parameters if symbol.name not in inputs]
        if missing:
            raise InputError("inputs", sorted(inputs), f"formula {self.id} also needs {', '.join(missing)}")
        return {symbol.name: inputs[symbol.name] for symbol in self.parameters}

    def substituted(self, inputs: Mapping[str, Numbers]) -> str:
        """The formula with its numbers and the result, in LaTeX; every input must be one number."""
        chosen = self.chosen(inputs)
        many = [name for name, value in chosen.items() if np.size(value) != 1]
        if many:
            raise InputError(many[0], "an array", "pick one of its values to show the maths for")
        numbers = {name: latex_number(float(np.asarray(value).item())) for name, value in chosen.items()}
        result = float(np.asarray(self.function(**chosen)).item())
        filled = Template(RAISED.sub(_bracketed(numbers), self.template)).substitute(numbers)
        return f"{self.result.latex} = {filled} = {latex_reading(result, self.result.unit)}"


def _bracketed(numbers: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    """Brackets around a base that is itself written with a power of ten: LaTeX refuses two exponents in a row."""

    def base(found: re.Match[str]) -> str:
        return rf"\left({found[0]}\right)" if "^" in numbers[found[1]] else found[0]

    return base


def latex_number(value: float) -> str:
    r"""A number as it stands in a filled formula: `819{,}200`, `2.04\times 10^{12}`, `0.0165`; exponents go by threes."""
    if not isfinite(value):
        return r"\infty" if value > 0 else r"-\infty"
    if value == round(value) and abs(value) < EXACT_BELOW:
        return _grouped(count(value))
    if 1e-3 <= abs(value) < EXACT_BELOW:
        return _grouped(significant(value, DIGITS))
    exponent = 3 * floor(log10(abs(value)) / 3)
    mantissa = significant(value / 10.0**exponent, DIGITS)
    return rf"{_grouped(mantissa)}\times 10^{{{exponent}}}"


def latex_reading(value: float, unit: str) -> str:
    """A result with the unit that suits it: seconds as ms, bytes as GB and GiB."""
    if not isfinite(value):
        return r"\infty"
    return _READINGS.get(unit, _plain_reading)(value, unit)


def _plain_reading(value: float, unit: str) -> str:
    number = latex_number(value) if value == round(value) else latex_number(float(f"{value:.3e}"))
    return (
        number if unit == "1" else rf"{number}\,\text{{{unit.replace('second', 's').replace('byte', 'B')}}}"
    )


def _bytes_reading(value: float, unit: str) -> str:
    if abs(value) < EXACT_BELOW and value == round(value):
        return rf"{latex_number(value)}\,\text{{{unit}s}}"
    return rf"\text{{{decimal_bytes(value)} ({binary_bytes(value)})}}"


_READINGS: dict[str, Callable[[float, str], str]] = {
    "second": lambda value, _unit: rf"\text{{{seconds(value)}}}",
    "byte": _bytes_reading,
    "byte/second": lambda value, _unit: rf"\text{{{si(value, 'B/s')}}}",
    "1/second": lambda value, _unit: rf"{_plain_reading(value, '1')}\,\text{{per second}}",
    "FLOP": lambda value, _unit: rf"\text{{{si(value, 'FLOP')}}}",
    "FLOP/second": lambda value, _unit: rf"\text{{{si(value, 'FLOP/s')}}}",
    "joule": lambda value, _unit: rf"\text{{{si(value, 'J')}}}",
    "joule/second": lambda value, _unit: rf"\text{{{si(value, 'W')}}}",
    "USD": lambda value, _unit: rf"\text{{{usd(value)}}}".replace("$", r"\$"),
}


def _grouped(text: str) -> str:
    """Thousands separators that LaTeX does not space like a list."""
    return text.replace(",", "{,}")


def _docstring_part(function: Callable[..., Numbers], label: str) -> str:
    """What a docstring says after "Source:" or "Ignores:", as one line without the final stop."""
    text = " ".join((inspect.getdoc(function) or "").split())
    found = re.search(rf"{label}: (.*?)(?= Ignores: |$)", text)
    return found.group(1).rstrip(".") if found else ""
