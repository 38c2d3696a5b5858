"""A scenario as text: its fields one by one, a link's parameters, and a file with a schema version."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from math import isfinite
from typing import Any

from calc.errors import InputError
from calc.json_text import NOT_JSON, parse_json
from calc.scenario import MAX_JSON_CHARS, Scenario
from calc.typed_fields import field_kinds
from calc.units import GB, GIB, MS

SCHEMA_VERSION = 1

_KINDS = field_kinds(Scenario)

# URL parameter -> scenario field. Public once people share links: never rename, only add.
URL_PARAMETERS: dict[str, str] = {
    "model": "model",
    "rev": "revision",
    "weights": "quantization",
    "kv": "kv_dtype",
    "gpu": "gpu",
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "ep": "ep",
    "adp": "attention_dp",
    "nodes": "nodes",
    "engine": "engine",
    "engine_version": "engine_version",
    "traffic": "traffic",
    "rate": "rate_per_s",
    "users": "users",
    "arrival_cv": "arrival_cv",
    "peak": "peak_factor",
    "in": "input_tokens",
    "in_shape": "input_shape",
    "in_cv": "input_cv",
    "out": "output_tokens",
    "out_shape": "output_shape",
    "out_cv": "output_cv",
    "prefix": "prefix_share",
    "ttft_s": "ttft_s",
    "tpot_ms": "tpot_s",
    "e2e_s": "e2e_s",
    "pct": "percentile",
    "headroom": "headroom",
    "max_seqs": "max_seqs",
    "max_len": "max_model_len",
    "paged": "paged",
    "budget": "max_batched_tokens",
    "chunked": "chunked_prefill",
    "prefix_cache": "prefix_caching",
    "drafts": "draft_tokens",
    "acceptance": "acceptance",
    "pools": "disaggregated",
    "reuse_s": "reuse_after_s",
    "offload": "kv_offload",
    "offload_gb": "kv_offload_bytes",
    "util": "memory_utilization",
    "kv_gb": "kv_bytes_per_gpu",
    "mem_gib": "device_memory_bytes",
    "mfu": "mfu",
    "fidelity": "fidelity",
    "profile": "profile",
    "price": "usd_per_gpu_hour",
    "adapters": "adapters",
    "adapter_rank": "adapter_rank",
}
# Units that a link (and the box on screen) uses where they differ from the field's base unit: URL value x factor.
URL_UNITS: dict[str, float] = {"tpot_ms": MS, "kv_gb": GB, "offload_gb": GB, "mem_gib": float(GIB)}
VERSION_PARAMETER = "v"


def parse_value(name: str, text: str) -> object:
    """The value of field `name` from its text form; "none" empties an optional field."""
    kind = _KINDS.get(name)
    if kind is None:
        raise InputError(name, text, f"a scenario has the fields {', '.join(_KINDS)}")
    stripped = text.strip()
    if stripped.lower() in {"none", ""} and "None" in kind:
        return None
    if kind.startswith("bool"):
        if stripped.lower() in {"1", "true", "yes", "on"}:
            return True
        if stripped.lower() in {"0", "false", "no", "off"}:
            return False
        raise InputError(name, text, "it must be true or false")
    if kind.startswith(("int", "float")):
        return _parse_number(name, stripped, whole=kind.startswith("int"))
    return stripped


def _parse_number(name: str, text: str, *, whole: bool) -> float:
    try:
        number = float(text)
    except ValueError:
        raise InputError(name, text, "it must be a number") from None
    if not isfinite(number):
        raise InputError(name, text, "it must be a finite number")
    if not whole:
        return number
    if number != int(number):
        raise InputError(name, text, "it must be a whole number")
    return int(number)


def to_query(scenario: Scenario) -> dict[str, str]:
    """URL parameters of the scenario: only what differs from the defaults, and the schema version."""
    default = Scenario()
    query = {VERSION_PARAMETER: str(SCHEMA_VERSION)}
    for parameter, name in URL_PARAMETERS.items():
        value = getattr(scenario, name)
        if value != getattr(default, name):
            query[parameter] = _to_text(value, URL_UNITS.get(parameter, 1.0))
    return query


def from_query(query: Mapping[str, str]) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario that a link describes, and a sentence for every parameter that could not be used.

    Parameters that do not belong to the scenario are passed over: pages have their own, and say which are nobody's.
    """
    scenario = Scenario()
    problems: list[str] = []
    version = query.get(VERSION_PARAMETER, str(SCHEMA_VERSION))
    if version != str(SCHEMA_VERSION):
        problems.append(
            f"The link was made by another version ({version[:20]}); fields may read differently."
        )
    pending: dict[str, object] = {}
    for parameter, text in query.items():
        name = URL_PARAMETERS.get(parameter)
        if name is None:
            continue
        try:
            value = parse_value(name, text)
            if isinstance(value, float) and parameter in URL_UNITS:
                value = float(
                    f"{value * URL_UNITS[parameter]:.12g}"
                )  # 35 ms is 0.035, not 0.035000000000000003
            replace(scenario, **{name: value})  # type: ignore[arg-type]
        except InputError as error:
            problems.append(f"The link's {parameter} was left out: {error.message}")
        else:
            pending[name] = value
    scenario, refused = _together(scenario, pending)
    return scenario, (*problems, *refused)


def _together(scenario: Scenario, values: dict[str, object]) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario with as many of the values as go together, the first ones first, and a sentence for each that does not."""
    try:
        return replace(scenario, **values), ()  # type: ignore[arg-type]
    except InputError:
        pass
    refused = dict.fromkeys(values, "")
    while True:
        before = len(refused)
        for name in tuple(refused):
            try:
                scenario = replace(scenario, **{name: values[name]})  # type: ignore[arg-type]
            except InputError as error:
                refused[name] = error.message
            else:
                del refused[name]
        if len(refused) in {0, before}:
            return scenario, tuple(
                f"The link's values do not go together: {said}" for said in refused.values()
            )


def to_json(scenario: Scenario) -> str:
    """The scenario as a file: every field, and the schema version."""
    record = {"schema_version": SCHEMA_VERSION}
    record |= {field.name: getattr(scenario, field.name) for field in fields(scenario)}
    return json.dumps(record, indent=2)


def from_json(text: str) -> Scenario:
    """The scenario of a saved file; older schema versions are migrated, unknown fields are refused by name."""
    if len(text) > MAX_JSON_CHARS:
        raise InputError("scenario file", f"{len(text):,} characters", f"at most {MAX_JSON_CHARS:,} are read")
    try:
        record = parse_json(text, finite=True)
    except NOT_JSON:
        raise InputError("scenario file", text[:40], "it must be the JSON that Save scenario wrote") from None
    if not isinstance(record, dict):
        raise InputError("scenario file", record, "it must be a JSON object")
    version = record.pop("schema_version", None)
    if not isinstance(version, int) or version not in _MIGRATIONS:
        raise InputError("schema_version", version, f"this version reads {', '.join(map(str, _MIGRATIONS))}")
    for migrate in _MIGRATIONS[version]:
        record = migrate(record)
    unknown = sorted(set(record) - set(_KINDS))
    if unknown:
        raise InputError("scenario file", unknown[0], f"a scenario has the fields {', '.join(_KINDS)}")
    return Scenario(**record)


_Migration = Callable[[dict[str, Any]], dict[str, Any]]
_MIGRATIONS: dict[int, tuple[_Migration, ...]] = {1: ()}  # schema version -> steps up to the current one


def _to_text(value: object, unit: float) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value / unit:.12g}"
    return str(value)


def apply_settings(scenario: Scenario, settings: tuple[tuple[str, str], ...]) -> Scenario:
    """The scenario with fields replaced by values given as text (a lever, a suggestion, a URL)."""
    return replace(scenario, **{name: parse_value(name, text) for name, text in settings})  # type: ignore[arg-type]
