"""The accelerator catalogue: `load` one by id, alias or the name its driver reports; `all_ids` lists them.

The records stand in the TOML files beside this module, one file for each kind of part, in vendors' units (GB/s,
TFLOP/s, MiB); `presets.accelerators.record` turns one into a `calc.accelerator.Accelerator` in base units.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from calc.accelerator import Accelerator
from calc.custom_accelerator import accelerator_from_text
from calc.errors import InputError
from calc.typed_text import EXAMPLE, TYPED_PREFIX
from presets.accelerators.record import read_record

FOLDER = Path(__file__).parent

# In the order in which lists show them.
FILES = (
    "nvidia-datacenter",
    "nvidia-workstation",
    "nvidia-geforce",
    "nvidia-embedded",
    "amd",
    "intel",
    "google",
    "aws",
    "apple",
    "cpu",
    "other",
    "textbook",
)


@cache
def _records(file: str) -> Mapping[str, Mapping[str, Any]]:
    """The raw records of one file by id, each with the file's own vendor and date filled in."""
    with (FOLDER / f"{file}.toml").open("rb") as stream:
        content = tomllib.load(stream)
    shared = {key: value for key, value in content.items() if not isinstance(value, dict)}
    return {key: shared | value for key, value in content.items() if isinstance(value, dict)}


# The lines of a file that say how a part may be named: a string, or a list of strings on one line (JSON as much as TOML).
_NAMING = ("name = ", "aliases = ", "reported_as = ")


@cache
def _index() -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Of each id the file that it stands in and its names, from a glance at the lines: finding a part parses one file."""
    index: dict[str, tuple[str, tuple[str, ...]]] = {}
    for file in FILES:
        part_id = ""
        for line in (FOLDER / f"{file}.toml").read_text(encoding="utf-8").splitlines():
            if line.startswith("["):
                part_id = line.strip("[] ")
                index[part_id] = (file, (part_id,))
            elif line.startswith(_NAMING):
                value = json.loads(line.partition(" = ")[2])
                names = (value,) if isinstance(value, str) else tuple(value)
                index[part_id] = (file, index[part_id][1] + names)
    return index


def _record(part_id: str) -> Mapping[str, Any]:
    return _records(_index()[part_id][0])[part_id]


def all_ids() -> tuple[str, ...]:
    """Every id of the catalogue, in the order in which lists show them."""
    return tuple(_index())


def made_up_ids() -> tuple[str, ...]:
    """The lessons' made-up parts: they answer by closed forms, and are never offered as something to buy."""
    return tuple(part_id for part_id, (file, _names) in _index().items() if file == "textbook")


def matching_key(text: str) -> str:
    """What names are compared by: letters and digits only, without case ("NVIDIA H100 NVL" -> "nvidiah100nvl")."""
    return "".join(c for c in text.lower() if c.isalnum())


@cache
def _names() -> Mapping[str, str]:
    """Every way to name a part (id, name, alias, driver's name), as a matching key, to its id."""
    names: dict[str, str] = {}
    for part_id, (_, part_names) in _index().items():
        for name in part_names:
            names.setdefault(matching_key(name), part_id)
    return names


def reported_names(gpu_id: str) -> tuple[str, ...]:
    """The names under which the driver reports a part; empty where none was seen."""
    return tuple(_record(gpu_id).get("reported_as", ()))


def resolve_id(gpu_id: str) -> str:
    """The catalogue id that a person, a URL or a driver means; `InputError` with the nearest ids if there is none."""
    plain = gpu_id.strip().lower()
    if plain in _index():
        return plain
    found = _names().get(matching_key(gpu_id)) or _decorated(gpu_id)
    if found is None:
        raise InputError(
            "accelerator",
            gpu_id,
            f"the catalogue has no such part; nearest: {', '.join(_nearest(gpu_id))}",
            next_step=f"Take one of these, or type your own: {EXAMPLE}.",
        )
    return found


# What people and logs write around a part's name.
_MAKERS = ("nvidia", "geforce", "tesla", "amd", "instinct", "radeon", "intel")
_MEMORY_SUFFIX = re.compile(
    r"^(?P<name>.*?)[\s_-]+(?P<gb>\d{1,3})\s?gb([\s_-]*(hbm|gddr)\w*)?\s*$", re.IGNORECASE
)


def _decorated(text: str) -> str | None:
    """A name with its maker in front or its memory behind ("NVIDIA A40 48GB"); the memory must be the part's own."""
    suffix = _MEMORY_SUFFIX.match(text[:200])
    key = matching_key(suffix["name"] if suffix else text)
    for maker in _MAKERS:
        key = key.removeprefix(maker)
    for candidate in (key, f"rtx{key}") if key else ():
        found = _names().get(candidate)
        if found is None:
            continue
        label_gb = _record(found)["memory"].get("label_gb")
        if suffix is None or int(suffix["gb"]) == label_gb:
            return found
    return None


def _nearest(gpu_id: str, count: int = 3) -> list[str]:
    from difflib import SequenceMatcher

    wanted = matching_key(gpu_id[:60])  # the comparison is quadratic, and no name is longer
    scores: dict[str, float] = {}
    for name, part_id in _names().items():
        score = SequenceMatcher(None, wanted, name).ratio()
        scores[part_id] = max(score, scores.get(part_id, 0.0))
    return sorted(scores, key=lambda part_id: -scores[part_id])[:count]


@cache
def _load(part_id: str) -> Accelerator:
    return read_record(part_id, _record(part_id))


def load(gpu_id: str) -> Accelerator:
    """The accelerator of that id, alias or driver's name, matched without case.

    "<id>:<profile>" loads a MIG slice, "typed:memory=...,bandwidth=...,16bit=..." builds a typed accelerator. Raises
    `InputError` naming the three nearest ids for an unknown one, the card's profiles for an unknown slice, or the word
    of the typed text that is wrong.
    """
    if gpu_id.strip().lower().startswith(TYPED_PREFIX):
        return accelerator_from_text(gpu_id)
    whole, colon, profile = gpu_id.partition(":")
    if not colon:
        return _load(resolve_id(gpu_id))
    from presets.accelerators.mig import mig_slice

    return mig_slice(_load(resolve_id(whole)), profile)


def load_all() -> tuple[Accelerator, ...]:
    """The whole catalogue."""
    return tuple(_load(part_id) for part_id in all_ids())
