"""Accelerators that no catalogue has: built from a few typed numbers, and carried as text or as JSON.

`typed_accelerator` is what a form fills, `accelerator_from_text` what a command line gives; `accelerator_as_json` and
`accelerator_from_json` are exact inverses, in the base units of `Accelerator` itself, so that any accelerator (typed, a slice,
a catalogue entry that was corrected) survives a saved file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from types import MappingProxyType
from typing import Any

from calc.accelerator import Accelerator, Confirmation, Rate
from calc.errors import InputError
from calc.provenance import Provenance
from calc.typed_text import TYPED_PREFIX, typed_text, typed_words

# Bounds beyond which a typed number is a unit mistake, not a device (a wafer of 2024 has 2.1e16 B/s and 1.25e17 FLOP/s).
SMALLEST_MEMORY_BYTES = 1e6
LARGEST_MEMORY_BYTES = 1e15
SMALLEST_RATE_PER_S = 1e6
LARGEST_RATE_PER_S = 1e20

_LONGEST_TEXT = 4000


def typed_accelerator(
    *,
    name: str,
    memory_bytes: float,
    bandwidth_bytes_per_s: float,
    flop_per_s_16bit: float,
    flop_per_s_8bit: float | None = None,
    flop_per_s_4bit: float | None = None,
    link_bytes_per_s: float | None = None,
    node_size: int = 8,
    power_w: float | None = None,
) -> Accelerator:
    """An accelerator from the few numbers that a plan needs.

    `memory_bytes` is what the runtime can hand out, taken as exact; rates are dense, with FP32 accumulation; the 8-bit
    rate stands for fp8 and int8 alike, the 4-bit rate for fp4; the link is one way, all links of a device together;
    a node has 8 devices unless said otherwise.
    Raises `InputError` naming the field for anything that is not a number or is off by a unit.
    """
    title = " ".join(str(name).split())
    if not title or len(title) > 80:
        raise InputError("name", name, "give it a name of 1 to 80 characters")
    _within("memory_bytes", memory_bytes, SMALLEST_MEMORY_BYTES, LARGEST_MEMORY_BYTES, "bytes")
    _within(
        "bandwidth_bytes_per_s", bandwidth_bytes_per_s, SMALLEST_RATE_PER_S, LARGEST_RATE_PER_S, "bytes/s"
    )
    rates = _typed_rates(flop_per_s_16bit, flop_per_s_8bit, flop_per_s_4bit)
    if link_bytes_per_s is not None:
        _within("link_bytes_per_s", link_bytes_per_s, SMALLEST_RATE_PER_S, LARGEST_RATE_PER_S, "bytes/s")
    numbers = {
        "name": title,
        "memory_bytes": memory_bytes,
        "bandwidth_bytes_per_s": bandwidth_bytes_per_s,
        "flop_per_s_16bit": flop_per_s_16bit,
        "flop_per_s_8bit": flop_per_s_8bit,
        "flop_per_s_4bit": flop_per_s_4bit,
        "link_bytes_per_s": link_bytes_per_s,
        "node_size": node_size,
        "power_w": power_w,
    }
    made = Accelerator(  # its own checks come before its id, which is made of numbers that can be written
        id=TYPED_PREFIX,
        vendor="typed",
        name=title,
        arch="",
        memory_label_bytes=float(memory_bytes),
        driver_memory_bytes=int(memory_bytes),
        cuda_memory_bytes=(int(memory_bytes), int(memory_bytes)),
        bandwidth_bytes_per_s=float(bandwidth_bytes_per_s),
        rates=MappingProxyType(rates),
        link_bytes_per_s=link_bytes_per_s,
        link_kind="typed" if link_bytes_per_s else "",
        node_size=node_size,
        power_w=power_w,
        confirmation=Confirmation.TYPED,
        confirmed="Typed by the user.",
    )
    return replace(made, id=typed_text(numbers))


def _typed_rates(
    flop_per_s_16bit: float, flop_per_s_8bit: float | None, flop_per_s_4bit: float | None
) -> dict[str, Rate]:
    """Each typed rate under the formats that it stands for."""
    typed = {"bf16": flop_per_s_16bit, "fp16": flop_per_s_16bit}
    if flop_per_s_8bit is not None:
        typed |= {"fp8": flop_per_s_8bit, "int8": flop_per_s_8bit}
    if flop_per_s_4bit is not None:
        typed["fp4"] = flop_per_s_4bit
    for name, rate in typed.items():
        _within(f"{name} rate", rate, SMALLEST_RATE_PER_S, LARGEST_RATE_PER_S, "FLOP/s")
    return {name: Rate(flop_per_s=float(rate)) for name, rate in typed.items()}


def accelerator_from_text(text: str) -> Accelerator:
    """The accelerator that a line like "typed:memory=48GB,bandwidth=1000GB/s,16bit=100TFLOPS" describes.

    The accelerator's id is such a line itself, so that `accelerator_from_text(a.id) == a` for every typed one.
    Raises `InputError` naming the word that is wrong.
    """
    return typed_accelerator(**typed_words(text))


def _within(field: str, value: object, lowest: float, highest: float, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not lowest <= value <= highest:
        raise InputError(field, value, f"it must be a number from {lowest:g} to {highest:g} {unit}")


def accelerator_as_json(accelerator: Accelerator) -> dict[str, Any]:
    """The accelerator as plain JSON values; fields that hold their default are left out."""
    record: dict[str, Any] = {}
    for field in fields(Accelerator):
        value = getattr(accelerator, field.name)
        if field.name in _RATE_FIELDS:
            if value:
                record[field.name] = {fmt: _rate_as_json(rate) for fmt, rate in value.items()}
        elif field.default is MISSING or value != field.default:
            record[field.name] = list(value) if isinstance(value, tuple) else value
    return record


def _rate_as_json(rate: Rate) -> dict[str, Any]:
    values = {field.name: (getattr(rate, field.name), field.default) for field in fields(Rate)}
    return {name: value for name, (value, default) in values.items() if value != default}


def accelerator_from_json(record: object) -> Accelerator:
    """The accelerator that `accelerator_as_json` wrote, or that a person did.

    Raises `InputError` naming the field that is unknown, missing, of the wrong type or out of range.
    """
    values = _checked(record, "accelerator", _READERS)
    missing = [
        f.name for f in fields(Accelerator) if f.default is MISSING and f.default_factory is MISSING
        and f.name not in values
    ]  # fmt: skip
    if missing:
        raise InputError(f"accelerator.{missing[0]}", None, "the accelerator needs it")
    return Accelerator(**values)


def _checked(
    record: object, path: str, readers: Mapping[str, Callable[[object, str], Any]]
) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise InputError(path, record, "it must be a JSON object")
    values: dict[str, Any] = {}
    for name, value in record.items():
        if name not in readers:
            raise InputError(f"{path}.{name}", value, f"the fields are {', '.join(readers)}")
        values[name] = readers[name](value, f"{path}.{name}")
    return values


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise InputError(path, value, f"it must be text of at most {_LONGEST_TEXT} characters")
    return value


def _number(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(path, value, "it must be a number")
    return value


def _whole(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(path, value, "it must be a whole number")
    return value


def _or_none(reader: Callable[[object, str], Any]) -> Callable[[object, str], Any]:
    return lambda value, path: None if value is None else reader(value, path)


def _list_of(reader: Callable[[object, str], Any], length: int) -> Callable[[object, str], Any]:
    def read(value: object, path: str) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or len(value) != length:
            raise InputError(path, value, f"it must be a list of {length} numbers")
        return tuple(reader(item, path) for item in value)

    return read


def _one_of(kind: type[Confirmation | Provenance]) -> Callable[[object, str], Any]:
    def read(value: object, path: str) -> Confirmation | Provenance:
        for member in kind:
            if member.value == value:
                return member
        raise InputError(path, value, f"it is one of: {', '.join(member.value for member in kind)}")

    return read


def _rates(value: object, path: str) -> Mapping[str, Rate]:
    if not isinstance(value, Mapping):
        raise InputError(path, value, "it must be a JSON object of rates by compute format")
    rates: dict[str, Rate] = {}
    for fmt, rate in value.items():
        given = _checked(rate, f"{path}.{fmt}", _RATE_READERS)
        if "flop_per_s" not in given:
            raise InputError(f"{path}.{fmt}.flop_per_s", None, "the rate needs it")
        rates[str(fmt)] = Rate(**given)
    return MappingProxyType(rates)


_RATE_FIELDS = ("rates", "short_accumulate_rates")

_RATE_READERS: Mapping[str, Callable[[object, str], Any]] = {
    "flop_per_s": _number,
    "provenance": _one_of(Provenance),
    "range_factor": _number,
    "sustained_flop_per_s": _or_none(_number),
    "reason": _text,
}

_READERS: Mapping[str, Callable[[object, str], Any]] = {
    "id": _text,
    "vendor": _text,
    "name": _text,
    "arch": _text,
    "memory_label_bytes": _or_none(_number),
    "driver_memory_bytes": _or_none(_whole),
    "cuda_memory_bytes": _or_none(_list_of(_whole, 2)),
    "bandwidth_bytes_per_s": _number,
    "bandwidth_range_bytes_per_s": _or_none(_list_of(_number, 2)),
    "rates": _rates,
    "short_accumulate_rates": _rates,
    "compute_capability": _or_none(_text),
    "form_factor": _text,
    "year": _or_none(_whole),
    "memory_type": _text,
    "unified_shares": _or_none(_list_of(_number, 3)),
    "l2_bytes": _or_none(_number),
    "sm_count": _or_none(_whole),
    "clock_hz": _or_none(_number),
    "link_bytes_per_s": _or_none(_number),
    "link_kind": _text,
    "link_topology": _text,
    "link_to_one_peer_bytes_per_s": _or_none(_number),
    "link_domain_size": _or_none(_whole),
    "pcie": _text,
    "node_size": _whole,
    "devices_per_package": _whole,
    "power_w": _or_none(_number),
    "source_url": _text,
    "source_date": _text,
    "confirmation": _one_of(Confirmation),
    "confirmed": _text,
    "notes": _text,
}
