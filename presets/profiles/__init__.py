"""Profiles: what an accelerator reaches with an engine, from the fitted data beside this module.

`devices.json` holds one DeviceProfile per accelerator family, `engines.json` the engine profiles, `fit.json` which models
and accelerators are in the fit and how wide its held-out errors are. All three are written by scripts/fit_profiles.py.
`load` picks the closest for an accelerator and an engine and says how close that is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from calc.accelerator import Accelerator
from calc.errors import InputError
from calc.json_text import NOT_JSON, parse_json
from calc.profile import (
    DEFAULT_SPREAD,
    Calibration,
    DeviceProfile,
    EngineProfile,
    Evidence,
    Profile,
    Schedule,
    device_from_json,
    engine_from_json,
    profile_from_json,
)
from presets import accelerators
from presets.profiles.calibrated import calibration_path, data_folder, is_calibration, with_calibration
from presets.written import written

FOLDER: Final = Path(__file__).parent
LARGEST_BYTES: Final = 16_000_000  # a profile with its run, which has 8 MB at most

# Families with kernel tables or measured runs, by architecture and whether the memory is HBM.
_FAMILIES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {  # architecture: (family with HBM, family without)
        "Pascal": ("volta", "volta"),
        "Volta": ("volta", "volta"),
        "Turing": ("volta", "volta"),
        "Ampere": ("ampere", "ampere-gddr"),
        "Ada": ("ada", "ada"),
        "Hopper": ("hopper", "hopper"),
        "Blackwell": ("blackwell", "blackwell-gddr"),
        "Blackwell Ultra": ("blackwell", "blackwell"),
        "CDNA": ("cdna", "cdna"),
        "CDNA2": ("cdna", "cdna"),
        "CDNA3": ("cdna", "cdna"),
        "CDNA4": ("cdna", "cdna"),
        "RDNA3": ("rdna", "rdna"),
        "RDNA4": ("rdna", "rdna"),
        "RDNA3.5": ("rdna", "rdna"),
    }
)
# GeForce cards run 16-bit products with 16-bit sums at twice the rate that their datasheet states for 32-bit sums; kernels
# that use it (llama.cpp) reach another share there, so they are families of their own beside the workstation cards.
PARENTS: Final[Mapping[str, str]] = MappingProxyType(
    {"ampere-geforce": "ampere-gddr", "ada-geforce": "ada", "blackwell-geforce": "blackwell-gddr"}
)
# Families whose serving engines kernel tables tell about, and no serving point: closer than another family's, not as a run.
KERNELS_ONLY: Final = ("ada", "blackwell-gddr")
UNIFIED: Final = ("dgx-spark-gb10", "jetson-thor-t5000")  # Blackwell beside LPDDR: a family of their own
SAME_ENGINE: Final[Mapping[str, str]] = MappingProxyType({"ollama": "llama.cpp"})  # what it runs inside
FALLBACK_FAMILY: Final = "ampere"
CPU_ARCHITECTURES: Final = (
    "Zen 3", "Zen 4", "Zen 5", "Sapphire Rapids", "Emerald Rapids", "Granite Rapids", "Sapphire Rapids HBM", "Neoverse V2",
)  # fmt: skip


def family_of(accelerator: Accelerator) -> str:
    """The family whose measurements speak for an accelerator."""
    if accelerator.id in UNIFIED:
        return "gb10"
    if accelerator.vendor == "Apple":
        return "apple"
    if accelerator.arch in CPU_ARCHITECTURES:
        return "cpu"
    with_hbm, without = _FAMILIES.get(accelerator.arch, ("", ""))
    if "HBM" in accelerator.memory_type.upper():
        return with_hbm
    gaming = {parent: own for own, parent in PARENTS.items()} if "GeForce" in accelerator.name else {}
    return gaming.get(without, without)


@cache
def _read(name: str) -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content


@cache
def devices() -> Mapping[str, DeviceProfile]:
    """Device profiles by family."""
    return {entry["family"]: device_from_json(entry) for entry in _read("devices")["devices"]}


@cache
def engines() -> tuple[EngineProfile, ...]:
    """Engine profiles; one engine may have several, by family or version."""
    return tuple(engine_from_json(entry) for entry in _read("engines")["engines"])


@cache
def fitted() -> tuple[tuple[tuple[str, str, str], ...], Mapping[str, float]]:
    """((model, accelerator, engine) in the fit, half-widths of the 80% range)."""
    content = _read("fit")
    points = tuple((str(m), str(a), str(e)) for m, a, e in content["points"])
    return points, MappingProxyType({**DEFAULT_SPREAD, **content["spread"]})


def engine_names() -> tuple[str, ...]:
    """Engines that have a profile of their own."""
    return tuple(dict.fromkeys(profile.engine for profile in engines()))


def load(
    accelerator: Accelerator | str,
    engine: str = "vllm",
    *,
    model_id: str | None = None,
    engine_version: str = "",
    calibration: Calibration | None = None,
) -> Profile:
    """The profile for an accelerator and an engine; `evidence` says how close its data are to this question.

    Raises InputError for an engine that nobody fitted.
    """
    device = accelerators.load(accelerator) if isinstance(accelerator, str) else accelerator
    family = family_of(device)
    known = devices()
    found = known.get(family) or known.get(PARENTS.get(family, family))
    if found is None:
        found = replace(known[FALLBACK_FAMILY], family=family or device.arch, accelerators=())
    chosen = _engine(engine, family, engine_version)
    points, spread = fitted()
    evidence = _evidence(device, chosen, family, model_id, points)
    if calibration is not None and calibration.scalars:
        evidence = Evidence.CALIBRATED
    return Profile(
        device=found,
        engine=chosen,
        calibration=calibration or Calibration(),
        evidence=evidence,
        models=points,
        spread=spread,
    )


def _engine(engine: str, family: str, version: str) -> EngineProfile:
    candidates = [profile for profile in engines() if profile.engine == engine]
    if not candidates and engine in SAME_ENGINE:
        return _engine(SAME_ENGINE[engine], family, "")
    if not candidates:
        raise InputError("engine", engine, f"engines with a profile are {', '.join(engine_names())}")
    on_family = [profile for profile in candidates if family in profile.families]
    on_family = on_family or [p for p in candidates if PARENTS.get(family, family) in p.families]
    on_family = on_family or [profile for profile in candidates if not profile.families] or candidates
    versioned = [profile for profile in on_family if profile.version and version.startswith(profile.version)]
    current = [profile for profile in on_family if not profile.version]
    return (versioned or current or on_family)[0]


def _evidence(
    device: Accelerator,
    engine: EngineProfile,
    family: str,
    model_id: str | None,
    points: tuple[tuple[str, str, str], ...],
) -> Evidence:
    wanted = (model_id or "").casefold()
    if any(m.casefold() == wanted and a == device.id and e == engine.engine for m, a, e in points):
        return Evidence.SAME_MODEL_AND_GPU
    kernels_only = family in KERNELS_ONLY and engine.schedule is not Schedule.SINGLE_USER
    if family in engine.families and not kernels_only:
        return Evidence.SAME_FAMILY
    known = devices().get(family) or devices().get(PARENTS.get(family, family))
    return Evidence.RELATED if known is not None and known.accelerators else Evidence.DATASHEET


def read_over(fitted: Profile, path: Path, *, accelerator_id: str | None = None) -> Profile:
    """A fitted profile with what a file brings: of a probe's run its device alone, of any other profile everything.

    What torch reached by probe says nothing about an engine, so the fitted engine stays. Raises InputError where the file is
    no profile, or a run of another device than `accelerator_id`: its shares are of other peaks.
    """
    content = _content(path)
    if not isinstance(content.get("run"), dict):
        return profile_from_json(content)
    device = device_from_json(content.get("device"))
    if accelerator_id is not None and accelerator_id not in device.accelerators:
        measured_on = ", ".join(device.accelerators) or "a device without a name"
        raise InputError(
            "profile",
            str(path),
            f"it was measured on {measured_on}, and the question is about {accelerator_id}",
            next_step="Ask about the device that was measured (--gpu), or leave the file out.",
        )
    return replace(fitted, device=device)


def with_stored_run(fitted: Profile, accelerator: Accelerator, run_id: str, *, model_id: str = "") -> Profile:
    """A fitted profile with the device of a stored probe run, where that run is of this accelerator; else unchanged.

    The id of a calibrated endpoint gives its calibration instead, for the model, accelerator and engine that it was fitted on.
    Raises InputError for a run that is not stored here.
    """
    if not run_id:
        return fitted
    if is_calibration(run_id):
        return with_calibration(fitted, run_id, accelerator_id=accelerator.id, model_id=model_id)
    path = stored_run(run_id)
    device = _stored_device(path, written(path))
    return replace(fitted, device=device) if accelerator.id in device.accelerators else fitted


@lru_cache(maxsize=32)
def _stored_device(path: Path, _written: str) -> DeviceProfile:
    """The device of a stored run's profile, read once for each time that it was written."""
    return device_from_json(_content(path).get("device"))


def profile_written(profile_id: str) -> str:
    """What tells apart two states of a stored run's or calibration's file; empty for an id that names none."""
    if not profile_id:
        return ""
    try:
        return written(calibration_path(profile_id) if is_calibration(profile_id) else stored_run(profile_id))
    except InputError:  # whoever reads it says so
        return ""


def stored_run(run_id: str) -> Path:
    """The profile file of a stored probe run; raises InputError where there is none."""
    known = {path.stem: path for path in (data_folder() / "probes" / "profiles").glob("*.json")}
    if run_id not in known:
        raise InputError(
            "profile",
            run_id,
            "no such measured run is stored here",
            next_step="Measure this device again, import the run's file on the page This GPU, or leave it empty.",
        )
    return known[run_id]


def _content(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_BYTES + 1)
        if len(text) > LARGEST_BYTES:
            raise InputError("profile", path.name, f"at most {LARGEST_BYTES:,} bytes are read")
        content = parse_json(text, finite=True)
    except (OSError, *NOT_JSON) as error:
        raise InputError("profile", str(path), f"it must be a readable JSON file ({error})") from error
    if not isinstance(content, dict):
        raise InputError("profile", str(path), "it must hold a JSON object")
    return content
