"""Results of probes on disk: one JSON file per run in the user's data folder, written atomically. No torch.

A run is a dictionary (`SCHEMA`): device, software, state, cases, problems, and how it went. Files are data: they are
read with a size limit and checked field by field before anything uses them, whoever made them.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from calc.accelerator import Accelerator
from calc.errors import InputError, ProbeError
from calc.json_text import NOT_JSON, parse_json
from presets.profiles.calibrated import data_folder
from presets.whole_file import remove_parts, why, write_whole
from probes import measured, readings, run_form, sanity
from probes.readings import Readings
from probes.registry import LEFT_OUT
from probes.sanity import Finding
from probes.whole_path_line import WholePathLine

KIND: Final = "ridgebeam probe run"
SCHEMA: Final = 1
LARGEST_BYTES: Final = 8_000_000
RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")

Run = dict[str, Any]


def folder() -> Path:
    """The probes' folder in the user's data folder."""
    return data_folder() / "probes"


def new_id(device_name: str) -> str:
    """An id that sorts by time, says the device, and is never given twice."""
    now = dt.datetime.now(tz=dt.UTC).strftime("%Y%m%dT%H%M%S")
    words = re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-")[:32] or "device"
    return f"{now}-{words}-{uuid.uuid4().hex[:6]}"


def path_of(run_id: str) -> Path:
    """Where a run lies; raises `InputError` for an id that is not one (a path, for instance)."""
    if not RUN_ID.fullmatch(run_id) or ".." in run_id:
        raise InputError("run", run_id, "it must be the id of a stored run")
    return folder() / "runs" / f"{run_id}.json"


def save(run: Run) -> Path:
    """Write a run atomically; raises `ProbeError` where the disk does not take it. Older files are never touched."""
    target = path_of(str(run.get("id", "")))
    remove_parts(target.parent)
    write_atomically(target, json.dumps(checked(run), indent=1))
    with suppress(InputError):  # a run that measured too little for a profile is kept all the same
        write_atomically(_profile_path(target.stem), json.dumps(measured.profile_json(run), indent=1))
    return target


def _profile_path(run_id: str) -> Path:
    """Where the profile of a run lies, for whoever resolves a scenario."""
    return folder() / "profiles" / f"{run_id}.json"


def write_atomically(target: Path, text: str) -> None:
    """A complete file or the one from before, never half of one; raises `ProbeError` where the disk does not take it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, [text])
    except OSError as error:
        raise ProbeError(
            f"The result could not be written to {target.parent}: {why(error)}.",
            next_step="Free some space (or set RIDGEBEAM_DATA_DIR to another folder) and measure again. "
            "Earlier results are untouched.",
        ) from error


def load(run_id: str) -> Run:
    """A stored run; raises `InputError` where there is none or it cannot be read."""
    path = path_of(run_id)
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise InputError("run", run_id, "its file is too large to be a run")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            "run", run_id, "no such run is stored here", next_step="Measure again, or import the run's file."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("run", run_id, f"its file cannot be read ({error})") from error
    return from_text(text)


def from_text(text: str) -> Run:
    """A run from the text of a file that somebody gave us; raises `InputError` saying what is wrong with it.

    A profile that `ridgebeam probe` printed holds its run and is accepted too.
    """
    if len(text) > LARGEST_BYTES:
        raise InputError("run", f"{len(text)} characters", f"at most {LARGEST_BYTES} are read")
    try:
        content = parse_json(text, finite=True)
    except NOT_JSON as error:
        raise InputError("run", text[:40], "it must be a JSON file that a probe wrote") from error
    if isinstance(content, dict) and isinstance(content.get("run"), dict):
        content = content["run"]
    return checked(content)


def checked(content: object) -> Run:
    """The run if it has the form of one; raises `InputError` naming the first field that has not."""
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise InputError(
            "run", content if not isinstance(content, dict) else "an object", f"kind must be {KIND!r}"
        )
    if content.get("schema") != SCHEMA:
        raise InputError("run schema", content.get("schema"), f"this version reads {SCHEMA}")
    if not isinstance(content.get("id"), str) or not RUN_ID.fullmatch(content["id"]):
        raise InputError("run id", content.get("id"), "it must be a short name")
    run_form.check_run(content)
    return content


def import_run(text: str) -> Run:
    """Store a run that came as a file; an id that is taken by another run gets a new ending."""
    run = dict(from_text(text)) | {"imported": True}
    if path_of(run["id"]).exists() and _differs(run):
        run["id"] = f"{run['id'][:72]}-{uuid.uuid4().hex[:6]}"
    save(run)
    return run


def _differs(run: Run) -> bool:
    try:
        here = load(run["id"])
    except InputError:
        return True
    return any(here.get(name) != run.get(name) for name in ("cases", "device", "started"))


def export_text(run: Run) -> str:
    """A run as a file for somebody else; the device's serial identity stays here."""
    device = {name: value for name, value in run["device"].items() if name != "uuid"}
    return json.dumps({**run, "device": device}, indent=1)


def history() -> list[Run]:
    """Stored runs, newest first; files that are no runs are passed over.

    A run that a clock gone wrong dated into the future comes last: it would be the newest for years.
    """
    found = []
    runs = folder() / "runs"
    for path in sorted(runs.glob("*.json"), reverse=True) if runs.is_dir() else ():
        try:
            found.append(load(path.stem))
        except InputError:
            continue
    now = dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds")
    return sorted(found, key=lambda run: (run["started"] <= now, run["started"]), reverse=True)


def delete(run_id: str) -> None:
    """Forget a run; raises `ProbeError` where the folder does not let go of it."""
    try:
        path_of(run_id).unlink(missing_ok=True)
        _profile_path(run_id).unlink(missing_ok=True)
    except OSError as error:
        raise ProbeError(
            f"Run {run_id} could not be deleted: {error.strerror}.",
            next_step=f"Check the rights of {folder()}.",
        ) from error


def faults(run: Run) -> list[dict[str, Any]]:
    """The problems of a run that nobody chose: cases that were tried and gave no number."""
    return [problem for problem in run["problems"] if problem.get("kind") != LEFT_OUT]


def compare(first: Run, second: Run) -> list[dict[str, Any]]:
    """Cases that both runs have, with the second over the first; for times a ratio below 1 is the faster."""
    before = {(row["probe"], row["case"]): row for row in first["cases"]}
    rows = []
    for row in second["cases"]:
        old = before.get((row["probe"], row["case"]))
        if old is not None and old["unit"] == row["unit"]:
            rows.append(
                {
                    "probe": row["probe"],
                    "case": row["case"],
                    "first": old["value"],
                    "second": row["value"],
                    "unit": row["unit"],
                    "ratio": row["value"] / old["value"],
                }
            )
    return rows


def readings_of(run: Run) -> Readings:
    """What a run says, as a handful of rates."""
    return readings.readings(run)


def cases_of(run: Run, probe: str) -> list[Mapping[str, Any]]:
    """The cases of one probe, in the order in which they were measured."""
    return readings.of_probe(run["cases"], probe)


def accelerator_of(run: Run) -> Accelerator:
    """The catalogue's entry of the run's device, or one made of its own peaks."""
    return measured.accelerator_of(run)


def findings_of(run: Run) -> list[Finding]:
    """Each rate of a run with its verdict against what is usual."""
    return sanity.findings(run)


def whole_path(run: Run) -> list[WholePathLine]:
    """The reference engine's tables of a run, each number beside its prediction; empty where it was not measured."""
    from probes import whole_path_table

    return whole_path_table.lines(run)


def unsteady(run: Run) -> list[str]:
    """A sentence where much of a run varied, else nothing."""
    return sanity.unsteady(run)


def stamp() -> tuple[tuple[str, int], ...]:
    """Which runs are stored, and when each was written: changes when the history does."""
    runs = folder() / "runs"
    return tuple(sorted((path.name, path.stat().st_mtime_ns) for path in runs.glob("*.json")))


def local_run(runs: Sequence[Run]) -> Run | None:
    """The newest run that was made on this machine, if it measured enough for a profile."""
    return next((run for run in runs if not run.get("imported") and _profile_path(run["id"]).is_file()), None)
