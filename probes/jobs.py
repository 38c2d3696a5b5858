"""Starting, following and cancelling measurements, for pages and the command line. No torch, no threads.

A job is a folder with its request, its events and the identity of its process, so that another page, another session or
a restarted app finds it again. Everything that is read is checked; a job whose process is gone is "interrupted", and what it
had measured is recovered into a run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calc.errors import ProbeError
from calc.json_text import NOT_JSON, parse_json
from probes import assemble, store
from probes.processes import end_group, how_it_ended, is_alive, new_group, start_time
from probes.registry import DEPTHS, FULL, GROUP_LIMIT_S, PROBES, QUICK
from probes.worker_codes import NOT_WRITTEN
from probes.workers import ROOT, last_words

KEPT_JOBS = 12
CANCELLED_MARK = "cancelled"  # for a job that was ended before it could say so
START_S = 10.0  # what starting processes and importing torch takes, beside the probes
HARD_LIMIT_GROUPS = 6

_children: dict[str, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure. `model`, `revision`, `config_text`: whose layer to build. `probes` None: all of them.

    `anyway`: also while others use the device. `extra`: further probe modules by name. `group_limit_s` and `silence_s`
    replace the usual time limits.
    """

    device: str = "auto"
    depth: str = QUICK
    model: str = ""
    revision: str = ""
    config_text: str = ""
    anyway: bool = False
    probes: tuple[str, ...] | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    group_limit_s: float | None = None
    silence_s: float | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "depth": self.depth,
            "model": self.model,
            "revision": self.revision,
            "config_text": self.config_text,
            "anyway": self.anyway,
            "probes": None if self.probes is None else list(self.probes),
            "extra": dict(self.extra),
            "group_limit_s": self.group_limit_s,
            "silence_s": self.silence_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeProgress:
    """One probe of a job: `state` is waiting, running, done or failed."""

    name: str
    title: str
    state: str
    measured: int = 0
    planned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a job stands. `status`: running, or how it ended; `run_id`: the stored run, if one could be made."""

    job_id: str
    status: str
    message: str
    next_step: str
    fraction: float
    remaining_s: float | None
    current: str
    probes: tuple[ProbeProgress, ...]
    run_id: str | None

    @property
    def running(self) -> bool:
        return self.status == "running"


WHOLE_PATH_LIMIT_S, WHOLE_PATH_SILENCE_S = 600.0, 240.0
WHOLE_PATH_BASE = ("bandwidth", "skinny_gemm", "launch", "gemm", "prefill_attention", "decode_attention")


def whole_path_request(*, device: str = "auto", model: str = "", anyway: bool = False) -> Request:
    """The reference engine with each serving idea off and on, and the rates that its predictions need."""
    return Request(
        device=device,
        model=model,
        anyway=anyway,
        probes=WHOLE_PATH_BASE,
        extra={"whole_path": "probes.whole_path"},
        group_limit_s=WHOLE_PATH_LIMIT_S,
        silence_s=WHOLE_PATH_SILENCE_S,
    )


def start(request: Request) -> str:
    """Start measuring in a process of its own; the answer is the job's id. Returns at once.

    Raises `ProbeError` where a measurement is running already or the data folder cannot be written.
    """
    if request.depth not in DEPTHS:
        raise ProbeError(f"depth {request.depth!r} is not one of {', '.join(DEPTHS)}.")
    running = current()
    if running is not None and _same_device(running, request.device):
        raise ProbeError(
            "A measurement of this device is running already.",
            next_step="Wait until it has ended, or cancel it.",
        )
    forget_old()
    job_id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"
    folder = _folder(job_id)
    store.write_atomically(folder / "request.json", json.dumps(request.as_json()))
    try:
        with (folder / "runner.txt").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - our own module, arguments are a list
                [sys.executable, "-m", "probes.runner", str(folder)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **new_group(),  # type: ignore[call-overload]
            )
    except OSError as error:
        raise ProbeError(f"The measuring process could not be started: {error}.") from error
    _children[job_id] = process
    identity = {"pid": process.pid, "started": start_time(process.pid), "at": time.monotonic()}
    store.write_atomically(folder / "job.json", json.dumps(identity))
    return job_id


def _same_device(job_id: str, device: str) -> bool:
    wanted = _read_json(_folder(job_id) / "request.json").get("device")
    return device == wanted or "auto" in {device, wanted}


def progress(job_id: str) -> Progress:
    """Where the job stands now. A job that ran past every limit is ended; one that died is recovered."""
    folder = _folder(job_id)
    request = _read_json(folder / "request.json")
    events = _events(folder)
    end = next((event for event in events if event["event"] == "end"), None)
    alive, code = _state_of(job_id, folder)
    if alive and end is None and _age_s(folder) > hard_limit_s(request):
        cancel(job_id)
        return progress(job_id)
    saved = next((event["run_id"] for event in events if event["event"] == "saved"), None)
    if alive:
        return _running(job_id, request, events)
    return _ended(job_id, request, events, saved=saved, code=code)


def _running(job_id: str, request: Mapping[str, Any], events: list[dict[str, Any]]) -> Progress:
    probes = _probe_progress(request, events)
    spent = max(0.0, _age_s(_folder(job_id)))
    total = START_S + sum(_expected_s(probe.name, request) for probe in probes)
    done = START_S * bool(events) + sum(_expected_s(probe.name, request) * _share(probe) for probe in probes)
    fraction = min(0.99, done / total)
    pace = spent / done if done > START_S else 1.0
    remaining = max(1.0, (total - done) * min(4.0, max(0.5, pace)))
    running = next((event for event in reversed(events) if event["event"] == "start"), None)
    now = f"{running['probe']}: {running['case']}" if running else "starting"
    return Progress(
        job_id=job_id,
        status="running",
        message="",
        next_step="",
        fraction=fraction,
        remaining_s=remaining,
        current=now,
        probes=probes,
        run_id=None,
    )


def _ended(
    job_id: str,
    request: Mapping[str, Any],
    events: list[dict[str, Any]],
    *,
    saved: str | None,
    code: int | None,
) -> Progress:
    end = next((event for event in events if event["event"] == "end"), None)
    status = str(end["status"]) if end else assemble.INTERRUPTED
    message, next_step = (str(end[name]) for name in ("message", "next_step")) if end else ("", "")
    not_saved = next((event for event in events if event["event"] == "not saved"), None)
    if not_saved is not None:
        status, message, next_step = assemble.FAILED, str(not_saved["message"]), str(not_saved["next_step"])
    elif end is None:
        message, next_step = _why_it_died(_folder(job_id), code)
        if (_folder(job_id) / CANCELLED_MARK).exists():
            status, message, next_step = assemble.CANCELLED, "Cancelled.", ""
        saved = saved or _recover(events)
        if saved:
            message += " What was measured until then is kept."
    return Progress(
        job_id=job_id,
        status=status,
        message=message,
        next_step=next_step,
        fraction=1.0,
        remaining_s=None,
        current="",
        probes=_probe_progress(request, events),
        run_id=saved,
    )


def _why_it_died(folder: Path, code: int | None) -> tuple[str, str]:
    words = last_words(folder / "runner.txt")
    if code == NOT_WRITTEN:
        return (
            f"The measurement could not be written: {words or 'no space left'}.",
            "Free some space, or set RIDGEBEAM_DATA_DIR to another folder. Earlier results are untouched.",
        )
    how = (
        f"The measurement {how_it_ended(code)}."
        if code is not None
        else "The measurement ended without a word."
    )
    return f"{how} {words}".strip(), "Measure again; earlier results are untouched."


def _recover(events: list[dict[str, Any]]) -> str | None:
    """Store what a dead job had measured; the id of that run, or None where there was nothing."""
    run = assemble.run_of(events)
    if run is None or not run["cases"]:
        return None
    with suppress(ProbeError):
        store.save(run)
        return str(run["id"])
    return None


def cancel(job_id: str) -> None:
    """End a job's own process group. What it had measured is kept."""
    folder = _folder(job_id)
    with suppress(OSError):
        (folder / CANCELLED_MARK).touch()
    identity = _read_json(folder / "job.json")
    if identity.get("pid"):
        end_group(int(identity["pid"]), identity.get("started"))
    child = _children.get(job_id)
    if child is not None:
        with suppress(subprocess.TimeoutExpired):
            child.wait(5)


def current() -> str | None:
    """The job that runs now, whoever started it; None where none does."""
    jobs = store.folder() / "jobs"
    for folder in sorted(jobs.iterdir(), reverse=True) if jobs.is_dir() else ():
        alive, _ = _state_of(folder.name, folder)
        if alive:
            return folder.name
    return None


def stderr_of(job_id: str) -> str:
    """What the workers wrote to their standard error, for people who want to know."""
    with suppress(OSError):
        return (_folder(job_id) / "stderr.txt").read_text(encoding="utf-8", errors="replace")[-8000:]
    return ""


def forget_old() -> None:
    """Remove all but the newest folders of jobs that have ended."""
    jobs = store.folder() / "jobs"
    if not jobs.is_dir():
        return
    for folder in sorted(jobs.iterdir())[:-KEPT_JOBS]:
        if _state_of(folder.name, folder)[0]:
            continue
        _children.pop(folder.name, None)
        for file in folder.iterdir():
            with suppress(OSError):
                file.unlink()
        with suppress(OSError):
            folder.rmdir()


def hard_limit_s(request: Mapping[str, Any]) -> float:
    """Seconds after which a job is ended whatever it says."""
    group_s = max(GROUP_LIMIT_S[str(request.get("depth", QUICK))], float(request.get("group_limit_s") or 0.0))
    return START_S + HARD_LIMIT_GROUPS * group_s


def _folder(job_id: str) -> Path:
    if not store.RUN_ID.fullmatch(job_id) or ".." in job_id:
        raise ProbeError(f"{job_id!r} is not the id of a job.")
    return store.folder() / "jobs" / job_id


def _state_of(job_id: str, folder: Path) -> tuple[bool, int | None]:
    """(whether the job's process runs, its exit code where it is our child)."""
    child = _children.get(job_id)
    if child is not None:
        code = child.poll()
        return code is None, code
    identity = _read_json(folder / "job.json")
    if not identity.get("pid"):
        return False, None
    return is_alive(int(identity["pid"]), identity.get("started")), None


def _age_s(folder: Path) -> float:
    """Seconds since its start, by a clock that no setting of the date moves and that the machine's processes share."""
    now = time.monotonic()
    return now - float(_read_json(folder / "job.json").get("at") or now)


def _events(folder: Path) -> list[dict[str, Any]]:
    """The job's events; a last line that is cut off, where the process died, is passed over."""
    try:
        text = (folder / "events.jsonl").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        with suppress(*NOT_JSON):
            event = parse_json(line, finite=True)
            if isinstance(event, dict) and "event" in event:
                found.append(event)
    return found


def _probe_progress(request: Mapping[str, Any], events: list[dict[str, Any]]) -> tuple[ProbeProgress, ...]:
    kind = next((str(e["device"]["kind"]) for e in events if e["event"] == "chosen"), None)
    wanted = request.get("probes")
    known = [
        (probe.name, probe.title)
        for probe in PROBES
        if probe.module != "probes.device_state"
        and (wanted is None or probe.name in wanted)
        and (kind is None or kind in probe.devices)
        and (probe.name != "layer" or request.get("model") or request.get("config_text"))
    ]
    known += [(name, name) for name in request.get("extra") or {}]
    over = any(event["event"] == "end" for event in events)
    return tuple(_one_probe(name, title, events, over=over) for name, title in known)


def _one_probe(name: str, title: str, events: list[dict[str, Any]], *, over: bool) -> ProbeProgress:
    own = [event for event in events if event.get("probe") == name]
    planned = next((len(event["cases"]) for event in reversed(own) if event["event"] == "plan"), 0)
    measured = sum(event["event"] == "result" for event in own)
    ended = sum(event["event"] in {"result", "problem"} for event in own)
    later = [event for event in events if event["event"] in {"plan", "phase"}]
    last_plan = next((i for i, e in reversed(list(enumerate(later))) if e.get("probe") == name), None)
    passed = last_plan is not None and last_plan < len(later) - 1
    if not own:
        state = "waiting"
    elif over or passed or (planned and ended >= planned):
        state = "done" if measured or not planned else "failed"
    else:
        state = "running"
    return ProbeProgress(name=name, title=title, state=state, measured=measured, planned=planned)


def _share(probe: ProbeProgress) -> float:
    if probe.state in {"done", "failed"}:
        return 1.0
    return min(1.0, probe.measured / probe.planned) if probe.planned else 0.0


def _expected_s(name: str, request: Mapping[str, Any]) -> float:
    for probe in PROBES:
        if probe.name == name:
            return probe.full_s if request.get("depth") == FULL else probe.quick_s
    return 5.0


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_text(encoding="utf-8"), finite=True)
    except (OSError, *NOT_JSON):
        return {}
    return content if isinstance(content, dict) else {}
