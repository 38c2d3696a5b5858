"""A typed accelerator as one line of text, which is its id: it works on a command line, in a link and in a picker.

    typed:memory=48GB,bandwidth=1000GB/s,16bit=100TFLOPS,8bit=200TFLOPS,link=50GB/s,node=8,power=300W,name=My card

Memory, bandwidth and the 16-bit rate are needed, the rest is optional. Units are decimal (GB, TB/s, TFLOPS, PFLOPS) or
binary (GiB, MiB); a bare number is in base units. The name comes last and may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from calc.errors import InputError
from calc.units import GIB, MIB

TYPED_PREFIX = "typed:"

EXAMPLE = "typed:memory=48GB,bandwidth=1000GB/s,16bit=100TFLOPS"

_BYTES = {"": 1, "b": 1, "mb": 10**6, "gb": 10**9, "tb": 10**12, "mib": MIB, "gib": GIB}
_BYTES_PER_S = {"": 1, "b/s": 1, "mb/s": 10**6, "gb/s": 10**9, "tb/s": 10**12}
_FLOP_PER_S = {
    "": 1,
    "gflops": 10**9,
    "tflops": 10**12,
    "pflops": 10**15,
    "gflop/s": 10**9,
    "tflop/s": 10**12,
}
_FLOP_PER_S |= {"pflop/s": 10**15, "tops": 10**12}
_WATT = {"": 1, "w": 1}
_COUNT = {"": 1}

# The words of the text: word -> (argument of `typed_accelerator`, units, the unit that is written back).
WORDS: Mapping[str, tuple[str, Mapping[str, int], str]] = {
    "memory": ("memory_bytes", _BYTES, "GB"),
    "bandwidth": ("bandwidth_bytes_per_s", _BYTES_PER_S, "GB/s"),
    "16bit": ("flop_per_s_16bit", _FLOP_PER_S, "TFLOPS"),
    "8bit": ("flop_per_s_8bit", _FLOP_PER_S, "TFLOPS"),
    "4bit": ("flop_per_s_4bit", _FLOP_PER_S, "TFLOPS"),
    "link": ("link_bytes_per_s", _BYTES_PER_S, "GB/s"),
    "node": ("node_size", _COUNT, ""),
    "power": ("power_w", _WATT, "W"),
}
_NEEDED = ("memory", "bandwidth", "16bit")
_QUANTITY = re.compile(r"^([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z/]*)$")


def typed_words(text: str) -> dict[str, Any]:
    """The arguments of `calc.custom_accelerator.typed_accelerator` that a line of text states.

    Raises `InputError` naming the word that is unknown, missing, doubled, or no quantity of its kind.
    """
    body = text.strip()
    if not body.lower().startswith(TYPED_PREFIX):
        raise InputError("gpu", text, f"a typed accelerator reads like {EXAMPLE}")
    before, *name = re.split("name=", body[len(TYPED_PREFIX) :], maxsplit=1, flags=re.IGNORECASE)
    arguments: dict[str, Any] = {"name": "".join(name).strip() or "typed accelerator"}
    for pair in filter(None, (part.strip() for part in before.split(","))):
        word, equals, value = (part.strip().lower() for part in pair.partition("="))
        if not equals or word not in WORDS:
            raise InputError(
                "gpu", pair, f"a typed accelerator reads like {EXAMPLE}; words: {', '.join(WORDS)}, name"
            )
        argument, units, _ = WORDS[word]
        if argument in arguments:
            raise InputError("gpu", pair, f"{word} was given before")
        arguments[argument] = _quantity(word, value, units)
    missing = [word for word in _NEEDED if WORDS[word][0] not in arguments]
    if missing:
        raise InputError("gpu", text, f"a typed accelerator needs {', '.join(missing)}, like {EXAMPLE}")
    return arguments


def _quantity(word: str, value: str, units: Mapping[str, int]) -> float:
    match = _QUANTITY.match(value)
    if match is None or match[2] not in units:
        allowed = ", ".join(unit for unit in units if unit) or "none"
        raise InputError("gpu", f"{word}={value}", f"{word} is a number with a unit ({allowed})")
    try:
        number = Decimal(match[1])
    except ArithmeticError:
        raise InputError("gpu", f"{word}={value}", f"{word} is a number with a unit") from None
    scaled = number * units[match[2]]
    return int(scaled) if units is _COUNT and scaled == int(scaled) else float(scaled)


def typed_text(arguments: Mapping[str, object]) -> str:
    """The line that `typed_words` reads back to the very same numbers."""
    parts = []
    for word, (argument, units, unit) in WORDS.items():
        value = arguments.get(argument)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            parts.append(f"{word}={_written(value, units[unit.lower()], unit)}")
    return f"{TYPED_PREFIX}{','.join(parts)},name={arguments.get('name', '')}"


def _written(value: float, scale: int, unit: str) -> str:
    """A number in its usual unit if it reads back exactly, else bare."""
    scaled = value / scale
    short = str(int(scaled)) if scaled == int(scaled) else repr(scaled)
    return f"{short}{unit}" if float(Decimal(short) * scale) == value else repr(value)
