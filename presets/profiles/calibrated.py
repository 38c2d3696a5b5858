"""Calibrations from measured endpoints, in the user's data folder: one JSON file each, for one model, accelerator and engine."""

from __future__ import annotations

import json
import os
import re
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from calc.errors import InputError
from calc.json_text import NOT_JSON, parse_json
from calc.profile import Evidence, Profile, profile_from_json
from presets.whole_file import remove_parts, why, write_whole

PREFIX: Final = "endpoint-"
ID: Final = re.compile(r"endpoint-[a-z0-9][a-z0-9-]{0,70}")


def data_folder() -> Path:
    """RIDGEBEAM_DATA_DIR, or the user's data folder of this platform."""
    chosen = os.environ.get("RIDGEBEAM_DATA_DIR")
    if chosen:
        return Path(chosen)
    import platformdirs

    return platformdirs.user_data_path("ridgebeam", appauthor=False)


def is_calibration(profile_id: str) -> bool:
    """Whether the id names a calibrated endpoint (a probe run's id begins with its date)."""
    return profile_id.startswith(PREFIX)


def save_calibration(profile: Profile, *, accelerator_id: str, model_id: str) -> str:
    """Store a calibrated profile; the answer is its id. Raises InputError where the folder cannot be written."""
    words = re.sub(r"[^a-z0-9]+", "-", model_id.lower()).strip("-")[:40] or "model"
    profile_id = f"{PREFIX}{words}-{uuid.uuid4().hex[:6]}"
    content = {"accelerator": accelerator_id, "model": model_id, "profile": profile.as_json()}
    target = calibration_path(profile_id)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_parts(target.parent)
        write_whole(target, [json.dumps(content, indent=1)])
    except OSError as error:
        raise InputError(
            "profile",
            str(target.parent),
            f"the folder must take a file ({why(error)})",
            next_step="Free some space, or set RIDGEBEAM_DATA_DIR to another folder.",
        ) from error
    return profile_id


def with_calibration(fitted: Profile, profile_id: str, *, accelerator_id: str, model_id: str) -> Profile:
    """The fitted profile with a stored calibration, where model, accelerator and engine are those that it was made on."""
    content = _read(profile_id)
    stored = profile_from_json(content["profile"])
    same = (content.get("accelerator"), content.get("model")) == (accelerator_id, model_id)
    if not same or stored.engine.engine != fitted.engine.engine:
        return fitted
    return replace(
        fitted,
        device=stored.device,
        engine=stored.engine,
        calibration=stored.calibration,
        evidence=Evidence.CALIBRATED,
        spread=stored.spread,
    )


def calibration_path(profile_id: str) -> Path:
    """Where a calibration lies, or would; raises InputError for what is no id of one (a path, for instance)."""
    if not ID.fullmatch(profile_id):
        raise InputError("profile", profile_id, "it must be the id of a calibrated endpoint")
    return data_folder() / "endpoints" / "profiles" / f"{profile_id}.json"


def _read(profile_id: str) -> dict[str, Any]:
    path = calibration_path(profile_id)
    try:
        content = parse_json(path.read_text(encoding="utf-8"), finite=True)
    except (OSError, *NOT_JSON):
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("profile"), dict):
        raise InputError(
            "profile",
            profile_id,
            "no such calibration is stored here",
            next_step="Measure the endpoint again on the page An endpoint, or leave it empty.",
        )
    return content
