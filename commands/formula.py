"""`ridgebeam formula`: one formula of the registry, with the numbers that were given in it."""

from __future__ import annotations

import argparse
from typing import Any

from calc.errors import InputError
from commands.arguments import OK, emit, verb


def add(verbs: Any) -> None:
    parser = verb(verbs, "formula", run, "one formula of the registry, with your numbers in it")
    parser.add_argument("formula", nargs="?", metavar="ID", help="leave out to list them all")
    parser.add_argument(
        "inputs", nargs="*", metavar="NAME=VALUE", help="base units: bytes, seconds, FLOP, tokens"
    )


def run(arguments: argparse.Namespace) -> int:
    from calc import formulas

    if arguments.formula is None:
        lines = [
            f"{record.id:<28} {record.title} ({', '.join(symbol.name for symbol in record.parameters)})"
            for record in formulas.FORMULAS.values()
        ]
        emit(arguments, {"formulas": list(formulas.FORMULAS)}, lines)
        return OK
    record = formulas.formula(arguments.formula)
    given = dict(_assignment(text) for text in arguments.inputs)
    inputs = given or dict(record.example.inputs)
    value = float(record.value(inputs))
    shown: dict[str, Any] = {
        "formula": record.id,
        "title": record.title,
        "inputs": {name: float(number) for name, number in record.chosen(inputs).items()},
        "value": value,
        "unit": record.result.unit,
        "latex": record.latex,
        "substituted": record.substituted(inputs),
        "source": record.source,
        "ignores": record.ignores,
    }
    lines = [
        record.title + ("" if given else f" (worked example: {record.example.source})"),
        f"{record.id} = {value:.6g} {record.result.unit}".removesuffix(" 1"),
        *(f"  {name} = {number:.6g}" for name, number in shown["inputs"].items()),
        f"Source: {record.source}",
        f"Ignores: {record.ignores}",
    ]
    emit(arguments, shown, lines)
    return OK


def _assignment(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        wrong = "write NAME=VALUE" if not equals else "the value must be a number"
        raise InputError("inputs", text, wrong, next_step="See `ridgebeam formula`.") from None
