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
from calc.provenance import Provenance
from calc.typed_fields import check_value, member_of

SCHEMA_VERSION: Final = 1


class Evidence(StrEnum):
    """On what an answer stands, from the strongest to the weakest."""

    CALIBRATED = "calibrated on this endpoint"
    SAME_MODEL_AND_GPU = "same model, GPU and engine"
    SAME_FAMILY = "same GPU family and engine, other model or GPU"
    RELATED = "related GPU or engine"
    DATASHEET = "datasheet only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One constant: its value, what it is a share of (or its unit), and where it comes from.

    `error` is the median relative error of the fit that made it, over points that the fit did not see; None where it was
    not fitted alone.
    """

    value: float
    of: str
    provenance: Provenance
    error: float | None = None
    source: str = ""

    def as_json(self) -> dict[str, object]:
        return {
            "value": self.value,
            "of": self.of,
            "provenance": str(self.provenance),
            "error": self.error,
            "source": self.source,
        }


SHARE: Final = "share"  # prefix of the `of` of fractions, which lie between 0 and 1
LEAST_SHARE: Final = 1e-6  # less of a peak is no measurement; times are divided by it
MAY_BE_NOTHING: Final = ("prefill_attention.compute_fp8", "attention.bandwidth_8bit", "prefill.share")
LARGEST: Final = 1e6  # of anything else in a profile: seconds, tokens, factors
LARGEST_EXPONENT: Final = 100.0

# What a device profile holds, and the peak or unit of each.
DEVICE_NUMBERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bandwidth.16bit": "share of memory bandwidth, 16-bit weights",
        "bandwidth.8bit": "share of memory bandwidth, 8-bit weights",
        "bandwidth.4bit": "share of memory bandwidth, 4-bit weights",
        "bandwidth.activations": "share of memory bandwidth, activations",
        "compute.16bit": "share of the dense 16-bit rate",
        "compute.fp8": "share of the dense fp8 rate",
        "compute.fp4": "share of the dense fp4 rate",
        "compute.int8": "share of the dense int8 rate",
        "compute.weight_only": "share of the dense 16-bit rate, weights dequantised on the way",
        "kernel_s": "seconds per kernel",
    }
)

# What an engine profile holds. Engines with matrix kernels of their own may state device numbers as well.
ENGINE_NUMBERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attention.bandwidth": "share of memory bandwidth, reading cached keys and values",
        "attention.sequence_s": "seconds per sequence and layer of decode attention",
        "attention.bandwidth_8bit": "share of memory bandwidth, reading keys and values of an 8-bit cache; 0: as of 16 bits",
        "attention.sequence_8bit_s": "seconds per sequence and layer over an 8-bit cache; 0: as over 16 bits",
        "latent_attention.bandwidth": "share of memory bandwidth, reading cached latents",
        "mixer.bandwidth": "share of memory bandwidth, reading and writing recurrent state",
        "prefill_attention.compute": "share of the dense 16-bit rate, long prompts",
        "prefill_attention.compute_fp8": "share of the dense fp8 rate, prompts over an 8-bit cache; 0: they run in 16 bits",
        "prefill_attention.half_tokens": "tokens of a prompt at which half of that share is reached",
        "experts.bandwidth": "share of what dense weights reach, reading experts",
        "experts.compute": "share of what dense weights reach, computing experts",
        "experts.compute_4bit": "share of what dense weights reach, computing 4-bit experts",
        "experts.routing": "share of the distinct experts of uniform routing that real traffic touches",
        "activations.passes": "times the counted activation traffic",
        "collectives.factor": "times the fastest measured kernel, small messages",
        "layer_s": "seconds per layer",
        "layer.qk_norm_s": "seconds per layer with query and key norms",
        "layer.latent_s": "seconds per layer with latent attention",
        "layer.latent_8bit_s": "seconds per layer with latent attention in 8 bits",
        "layer.indexer_s": "seconds per layer with an indexer",
        "layer.indexer_prefill": "times the prefill attention of layers with an indexer",
        "layer.mixer_s": "seconds per layer with a recurrent mixer",
        "layer.experts_16bit_s": "seconds per expert layer, 16-bit or weight-only experts",
        "layer.experts_8bit_s": "seconds per expert layer, 8-bit experts",
        "layer.experts_4bit_s": "seconds per expert layer, 4-bit experts",
        "layer.quantised_activations_s": "seconds per layer whose attention quantises activations",
        "step_s": "seconds per step",
        "sequence_s": "seconds per sequence and step",
        "eager_layer_s": "seconds per layer of a step that no graph captures",
        "prefill.share": "share of the other requests' prefill work that a decoding request sees",
        "ttft.server_s": "seconds of server overhead before the first token",
        "ttft.steps": "decode steps that a prompt waits",
        "ttft.prefill": "times the prefill's own time",
    }
)


# Numbers that older profiles do not state, and what they mean there.
ENGINE_DEFAULTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "prefill_attention.compute_fp8": 0.0,
        "attention.bandwidth_8bit": 0.0,
        "attention.sequence_8bit_s": 0.0,
    }
)


class Schedule(StrEnum):
    """How an engine fits prompts between decode steps."""

    MIXED = "mixed"  # chunks of prompts ride in decode steps
    PREFILL_FIRST = "prefill first"  # a prompt runs alone, decoding waits
    SINGLE_USER = "single user"  # one request at a time


def _checked(kind: str, numbers: Mapping[str, Number], known: Mapping[str, str]) -> None:
    for name, number in numbers.items():
        if name not in known:
            raise InputError(f"{kind} number", name, f"known are {', '.join(known)}")
        if not 0 <= number.value <= LARGEST:
            raise InputError(name, number.value, f"it must be from 0 to {LARGEST:g}")
        if known[name].startswith(SHARE) and number.value > 1:
            raise InputError(name, number.value, "a share of a peak cannot exceed 1")
        if known[name].startswith(SHARE) and number.value < LEAST_SHARE and name not in MAY_BE_NOTHING:
            raise InputError(name, number.value, f"a share that is reached is at least {LEAST_SHARE:g}")


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
        _checked("device", self.numbers, DEVICE_NUMBERS)
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
        _checked("engine", self.numbers, {**DEVICE_NUMBERS, **ENGINE_NUMBERS})
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
    return {
        "family": device.family,
        "accelerators": list(device.accelerators),
        "numbers": {name: number.as_json() for name, number in device.numbers.items()},
        "all_reduce": [curve.as_json() for curve in device.all_reduce],
        "all_gather": [curve.as_json() for curve in device.all_gather],
        "source": device.source,
    }


def engine_as_json(engine: EngineProfile) -> dict[str, object]:
    return {
        "engine": engine.engine,
        "version": engine.version,
        "schedule": str(engine.schedule),
        "families": list(engine.families),
        "numbers": {name: number.as_json() for name, number in engine.numbers.items()},
        "chunk_tokens": engine.chunk_tokens,
        "source": engine.source,
    }


def number_from_json(data: object, name: str = "profile number") -> Number:
    """Read back a constant; raises InputError for a value, an origin or an error that is none."""
    if not isinstance(data, Mapping):
        raise InputError(name, data, "it must be an object with value, of and provenance")
    error = data.get("error")
    check_value(f"{name} value", data.get("value"), "float")
    check_value(f"{name} error", error, "float | None")
    for text in ("of", "source"):
        check_value(f"{name} {text}", data.get(text, ""), "str")
    return Number(
        value=float(data["value"]),
        of=data.get("of", ""),
        provenance=member_of(Provenance, data.get("provenance"), f"{name} provenance"),
        error=error,
        source=data.get("source", ""),
    )


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
