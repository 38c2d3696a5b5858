"""What is reached of an accelerator's datasheet by an engine: the profile format, versioned, every number with its origin.

    Profile
    ├── DeviceProfile    the accelerator family: shares of bandwidth and compute, kernel floor, links; probes override it
    ├── EngineProfile    the engine and version: attention, experts, overheads, scheduling
    └── Calibration      at most six scalars from a measured endpoint

A share names the peak that it refers to ("bf16 dense", "memory bandwidth") and never exceeds one. A measured device
replaces numbers of the DeviceProfile only; what torch reaches says nothing about an engine's own kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from calc.collectives import LinkCurve, curve_from_json
from calc.errors import InputError
from calc.profile_numbers import (
    DEVICE_NUMBERS,
    ENGINE_DEFAULTS,
    ENGINE_NUMBERS,
    LARGEST,
    Number,
    check_numbers,
    number_from_json,
)
from calc.provenance import Provenance
from calc.typed_fields import check_value, member_of

SCHEMA_VERSION: Final = 1
LARGEST_EXPONENT: Final = 100.0  # of the smooth maximum of compute and memory time


class Evidence(StrEnum):
    """On what an answer stands, from the strongest to the weakest."""

    CALIBRATED = "calibrated on this endpoint"
    SAME_MODEL_AND_GPU = "same model, GPU and engine"
    SAME_FAMILY = "same GPU family and engine, other model or GPU"
    RELATED = "related GPU or engine"
    DATASHEET = "datasheet only"


class Schedule(StrEnum):
    """How an engine fits prompts between decode steps."""

    MIXED = "mixed"  # chunks of prompts ride in decode steps
    PREFILL_FIRST = "prefill first"  # a prompt runs alone, decoding waits
    SINGLE_USER = "single user"  # one request at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """What an accelerator family reaches. `accelerators`: ids whose data are in it; others of the family inherit."""

    family: str
    accelerators: tuple[str, ...]
    numbers: Mapping[str, Number]
    all_reduce: tuple[LinkCurve, ...] = ()
    all_gather: tuple[LinkCurve, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        check_numbers("device", self.numbers, DEVICE_NUMBERS)
        missing = [name for name in DEVICE_NUMBERS if name not in self.numbers]
        if missing:
            raise InputError(f"device profile {self.family}", missing, "these numbers are missing")

    def measured(self, numbers: Mapping[str, float], *, source: str) -> DeviceProfile:
        """The same profile with numbers that a probe measured on this device; nothing else changes."""
        own = {
            name: Number(
                value=value, of=DEVICE_NUMBERS.get(name, ""), provenance=Provenance.MEASURED, source=source
            )
            for name, value in numbers.items()
        }
        return replace(self, numbers={**self.numbers, **own})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """What an engine adds. `families`: accelerator families that its numbers were fitted on."""

    engine: str
    version: str
    schedule: Schedule
    families: tuple[str, ...]
    numbers: Mapping[str, Number]
    chunk_tokens: int = 8192
    source: str = ""

    def __post_init__(self) -> None:
        check_numbers("engine", self.numbers, {**DEVICE_NUMBERS, **ENGINE_NUMBERS})
        missing = [name for name in ENGINE_NUMBERS if name not in {*self.numbers, *ENGINE_DEFAULTS}]
        if missing:
            raise InputError(f"engine profile {self.engine}", missing, "these numbers are missing")


# What a measured endpoint may set, and the neutral value of each.
CALIBRATION_NEUTRAL: Final[Mapping[str, float]] = MappingProxyType(
    {
        "decode_factor": 1.0,
        "prefill_factor": 1.0,
        "communication_factor": 1.0,
        "step_s": 0.0,
        "sequence_s": 0.0,
        "ttft_s": 0.0,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Scalars from a measured endpoint, at most six: factors on work, seconds on top. Empty: not calibrated."""

    scalars: Mapping[str, float] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        for name, value in self.scalars.items():
            if name not in CALIBRATION_NEUTRAL:
                raise InputError("calibration", name, f"known are {', '.join(CALIBRATION_NEUTRAL)}")
            if not 0 <= value <= LARGEST or (name.endswith("factor") and value * LARGEST < 1):
                raise InputError(
                    name, value, f"a factor is from {1 / LARGEST:g} to {LARGEST:g}, seconds are not negative"
                )

    def get(self, name: str) -> float:
        """The scalar, or its neutral value."""
        return self.scalars.get(name, CALIBRATION_NEUTRAL[name])


# Half-width of the 80% range as a factor, by what the answer stands on and by class of model. The fit writes its own
# values from held-out errors; these are what a profile without them uses.
DEFAULT_SPREAD: Final[Mapping[str, float]] = MappingProxyType(
    {
        "dense": 1.15,
        "experts": 1.18,
        "latent": 1.20,
        "dense, same model": 1.13,
        "experts, same model": 1.15,
        "latent, same model": 1.17,
        "time to first token": 1.5,
        "related": 1.17,
        "datasheet": 1.35,
        "calibrated": 1.08,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Everything between a datasheet and an expected time.

    `evidence` says how close the data are to this accelerator and engine; `models`: (model id, accelerator id, engine) of
    which measurements are in the fit; `spread`: half-widths of the 80% range.
    """

    device: DeviceProfile
    engine: EngineProfile
    calibration: Calibration = field(default_factory=Calibration)
    evidence: Evidence = Evidence.DATASHEET
    models: tuple[tuple[str, str, str], ...] = ()
    spread: Mapping[str, float] = field(default_factory=lambda: DEFAULT_SPREAD)
    exponent: float = 3.0

    def __post_init__(self) -> None:
        for name, factor in self.spread.items():
            if not 1 <= factor <= LARGEST:
                raise InputError(f"spread, {name}", factor, f"a range's factor is from 1 to {LARGEST:g}")
        if not 1 <= self.exponent <= LARGEST_EXPONENT:
            raise InputError("exponent", self.exponent, f"it must be from 1 to {LARGEST_EXPONENT:g}")

    def number(self, name: str) -> float:
        """A constant by name; an engine with kernels of its own (llama.cpp) may state what they reach of the device."""
        found = self.engine.numbers.get(name) or self.device.numbers.get(name)
        if found is not None:
            return found.value
        if name in ENGINE_DEFAULTS:
            return ENGINE_DEFAULTS[name]
        raise InputError("profile number", name, "no such number")

    def speaks_for_device(self, name: str) -> bool:
        """Whether a share was found on this very family: by a probe, or by an engine that was fitted on it."""
        own = self.engine.numbers.get(name)
        if own is not None:
            return self.device.family in self.engine.families
        found = self.device.numbers.get(name)
        return found is not None and found.provenance is Provenance.MEASURED

    @property
    def provenance(self) -> Provenance:
        """Where most of the answer's numbers come from."""
        if self.calibration.scalars:
            return Provenance.MEASURED
        return Provenance.ASSUMED if self.evidence is Evidence.DATASHEET else Provenance.FITTED

    def as_json(self) -> dict[str, object]:
        """The one format of profiles, for files and downloads."""
        return {
            "schema": SCHEMA_VERSION,
            "device": device_as_json(self.device),
            "engine": engine_as_json(self.engine),
            "calibration": {"scalars": dict(self.calibration.scalars), "source": self.calibration.source},
            "evidence": str(self.evidence),
            "models": [list(entry) for entry in self.models],
            "spread": dict(self.spread),
            "exponent": self.exponent,
        }


def device_as_json(device: DeviceProfile) -> dict[str, object]:
    """The device part of the profile format."""
    return {
        "family": device.family,
        "accelerators": list(device.accelerators),
        "numbers": {name: number.as_json() for name, number in device.numbers.items()},
        "all_reduce": [curve.as_json() for curve in device.all_reduce],
        "all_gather": [curve.as_json() for curve in device.all_gather],
        "source": device.source,
    }


def engine_as_json(engine: EngineProfile) -> dict[str, object]:
    """The engine part of the profile format."""
    return {
        "engine": engine.engine,
        "version": engine.version,
        "schedule": str(engine.schedule),
        "families": list(engine.families),
        "numbers": {name: number.as_json() for name, number in engine.numbers.items()},
        "chunk_tokens": engine.chunk_tokens,
        "source": engine.source,
    }


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name)
    if not isinstance(found, Mapping):
        raise InputError(f"profile {name}", found, "it must be an object")
    return found


def _text(data: Mapping[str, Any], name: str, default: str | None = None) -> str:
    found = data.get(name, default)
    check_value(f"profile {name}", found, "str")
    return str(found)


def _texts(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = data.get(name, ())
    check_value(f"profile {name}", found, "tuple[str, ...]")
    return tuple(found)


def _numbers(data: Mapping[str, Any]) -> dict[str, Number]:
    return {name: number_from_json(value, name) for name, value in _section(data, "numbers").items()}


def _curves(data: Mapping[str, Any], name: str) -> tuple[LinkCurve, ...]:
    found = data.get(name, ())
    if not isinstance(found, list | tuple):
        raise InputError(f"profile {name}", found, "it must be a list of curves")
    return tuple(curve_from_json(curve) for curve in found)


def device_from_json(data: object) -> DeviceProfile:
    """Read back a device profile; raises InputError for missing or unknown numbers, and for what is none."""
    if not isinstance(data, Mapping):
        raise InputError("device profile", data, "it must be an object")
    return DeviceProfile(
        family=_text(data, "family"),
        accelerators=_texts(data, "accelerators"),
        numbers=_numbers(data),
        all_reduce=_curves(data, "all_reduce"),
        all_gather=_curves(data, "all_gather"),
        source=_text(data, "source", ""),
    )


def engine_from_json(data: object) -> EngineProfile:
    """Read back an engine profile; raises InputError for missing or unknown numbers, and for what is none."""
    if not isinstance(data, Mapping):
        raise InputError("engine profile", data, "it must be an object")
    chunk_tokens = data.get("chunk_tokens", 8192)
    check_value("profile chunk_tokens", chunk_tokens, "int")
    return EngineProfile(
        engine=_text(data, "engine"),
        version=_text(data, "version"),
        schedule=member_of(Schedule, data.get("schedule"), "profile schedule"),
        families=_texts(data, "families"),
        numbers=_numbers(data),
        chunk_tokens=chunk_tokens,
        source=_text(data, "source", ""),
    )


def profile_from_json(data: Mapping[str, Any]) -> Profile:
    """Read back a whole profile; raises InputError for another schema version, a missing part or a value that is none."""
    if data.get("schema") != SCHEMA_VERSION:
        raise InputError("profile schema", data.get("schema"), f"this version reads {SCHEMA_VERSION}")
    calibration = _section({"calibration": {}} | dict(data), "calibration")
    scalars, spread = calibration.get("scalars", {}), data.get("spread", {})
    check_value("calibration", scalars, "Mapping[str, float]")
    check_value("profile spread", spread, "Mapping[str, float]")
    exponent = data.get("exponent", 3.0)
    check_value("profile exponent", exponent, "float")
    return Profile(
        device=device_from_json(data.get("device")),
        engine=engine_from_json(data.get("engine")),
        calibration=Calibration(scalars=dict(scalars), source=_text(calibration, "source", "")),
        evidence=member_of(Evidence, data.get("evidence", Evidence.DATASHEET), "profile evidence"),
        models=_models(data.get("models", ())),
        spread=MappingProxyType({**DEFAULT_SPREAD, **spread}),
        exponent=float(exponent),
    )


def _models(entries: object) -> tuple[tuple[str, str, str], ...]:
    """(model, accelerator, engine) of each measurement in the fit."""
    if not isinstance(entries, list | tuple):
        raise InputError("profile models", entries, "it must be a list")
    for entry in entries:
        check_value("profile models", entry, "tuple[str, ...]")
        if len(entry) != 3:
            raise InputError(
                "profile models", entry, "each entry names a model, an accelerator and an engine"
            )
    return tuple((model, accelerator, engine) for model, accelerator, engine in entries)
