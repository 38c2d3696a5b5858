"""Bundled models: popular ones from the config fields that were read, and the textbook's made-up ones. No network.

`model_configs.json` is written by scripts/write_model_presets.py: facts (layers, heads, widths) with the place they
were read from. Names are matched without case, and without the organisation where only one model has that name.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from calc.architectures import parse
from calc.errors import InputError
from calc.model import ModelSpec
from presets.textbook_models import TEXTBOOK_MODELS

_FILE: Final = Path(__file__).with_name("model_configs.json")


def preset_ids() -> tuple[str, ...]:
    """Ids of all bundled models, the textbook's first."""
    return (*TEXTBOOK_MODELS, *_presets())


def find(model_id: str) -> str | None:
    """The preset that a name means, or None: without case, and without the organisation where that is unambiguous."""
    return _names().get(model_id.strip().casefold())


def load(model_id: str) -> ModelSpec:
    """The spec of a bundled model; raises InputError for a name that is not bundled."""
    found = find(model_id)
    if found is None:
        raise InputError(
            "model",
            model_id,
            "no bundled model has that name",
            next_step="`ridgebeam model` without network knows the bundled ones; paste a config.json for another.",
        )
    return _load(found)


def config_of(model_id: str) -> dict[str, Any] | None:
    """The bundled config fields of a preset; None for the textbook's models, which have none."""
    found = find(model_id)
    return None if found is None or found in TEXTBOOK_MODELS else _presets()[found]["config"]


def source_of(model_id: str) -> str:
    """Where a preset's facts were read, with the hub revision where it is known."""
    found = find(model_id)
    if found is None or found in TEXTBOOK_MODELS:
        return "made up for teaching"
    entry = _presets()[found]
    revision = entry.get("revision")
    return f"{entry['source']} (equals hub revision {revision})" if revision else str(entry["source"])


@cache
def _load(preset_id: str) -> ModelSpec:
    if preset_id in TEXTBOOK_MODELS:
        return TEXTBOOK_MODELS[preset_id]
    entry = _presets()[preset_id]
    return parse(entry["config"], model_id=preset_id, hf_quant_config=entry.get("hf_quant_config"))


@cache
def _presets() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return loaded


@cache
def _names() -> dict[str, str]:
    """Every spelling that leads to a preset; a bare name that two organisations use leads nowhere."""
    bare: dict[str, list[str]] = {}
    for preset_id in preset_ids():
        bare.setdefault(preset_id.rsplit("/", 1)[-1].casefold(), []).append(preset_id)
    names = {name: ids[0] for name, ids in bare.items() if len(ids) == 1}
    return names | {preset_id.casefold(): preset_id for preset_id in preset_ids()}
