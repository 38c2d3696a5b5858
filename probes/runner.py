"""The process that runs a whole job: `python -m probes.runner JOB_FOLDER`. No torch; workers have it.

It asks torch which devices there are, takes the device's lock, lets one worker after another run, reads the device's
state beside them, and writes every event to the job's file as it comes and the run at the end. When it dies, its workers
see their standard input close and end too.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from calc.errors import ProbeError, RidgebeamError
from presets.local_device import LocalDevices, local_devices, match
from presets.whole_file import FULL_DISK
from probes import absence, assemble, device_state, locks, registry, store
from probes.device_state import NvmlReader
from probes.registry import GROUP_LIMIT_S, PROBES, QUICK, SILENCE_LIMIT_S, Probe
from probes.worker_codes import NOT_WRITTEN
from probes.workers import Order, run_group

FACTS_LIMIT_S = 90.0
START_S = 30.0  # what importing torch may take on a busy machine
STATE_PERIOD_S = 0.05
AUTO = "auto"


class CancelledError(Exception):
    """Somebody asked for the end (SIGTERM)."""


class Job:
    """One job: its request, its event file, and what has been seen so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.request: dict[str, Any] = json.loads((folder / "request.json").read_text(encoding="utf-8"))
        self.events: list[dict[str, Any]] = []
        self.started = time.monotonic()
        self.stderr = folder / "stderr.txt"

    def emit(self, event: Mapping[str, Any]) -> None:
        """Append an event to the job's file, at once."""
        self.events.append(dict(event))
        with (self.folder / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def end(self, status: str, message: str = "", next_step: str = "") -> None:
        self.emit(
            {
                "event": "end",
                "status": status,
                "message": message,
                "next_step": next_step,
                "seconds": time.monotonic() - self.started,
            }
        )


def main(arguments: list[str]) -> int:
    """Run the job of a folder. Exit code 0 however it went; NOT_WRITTEN where even that could not be said."""
    signal.signal(signal.SIGTERM, _cancel)
    job = Job(Path(arguments[0]))
    try:
        _run(job)
    except OSError as error:
        full = error.errno in FULL_DISK
        print(f"no space left for {job.folder}" if full else str(error), file=sys.stderr)  # noqa: T201 - the only way left to say it
        return NOT_WRITTEN
    return 0


def _cancel(_signal: int, _frame: FrameType | None) -> None:
    raise CancelledError


def _run(job: Job) -> None:
    job.emit(
        {
            "event": "begin",
            "started": dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
            "depth": job.request["depth"],
        }
    )
    lock: Path | None = None
    try:
        lock = _measure(job)
    except CancelledError:
        job.end(assemble.CANCELLED, "Cancelled. What was measured until then is kept.")
    except RidgebeamError as error:
        job.end(assemble.FAILED, error.message, error.next_step)
    try:
        run = assemble.run_of(job.events)
        if run is not None and run["cases"]:
            store.save(run)
            job.emit({"event": "saved", "run_id": run["id"]})
    except ProbeError as error:
        job.emit({"event": "not saved", "message": error.message, "next_step": error.next_step})
    finally:
        if lock is not None:
            locks.release(lock)


def _measure(job: Job) -> Path | None:
    nvml = local_devices()
    software, devices = _facts(job)
    device = _choose(job.request["device"], software, devices, nvml)
    key = device_key(device)
    lock = store.folder() / "locks" / f"{key}.lock"
    locks.take(lock, device=str(device["name"]))
    reader = NvmlReader(device.get("uuid") if device["kind"] == "cuda" else None)
    try:
        before = reader.identity()
        busy = device_state.in_use(before)
        if busy and not job.request.get("anyway"):
            raise ProbeError(
                f"{device['name']} is in use: {busy}. Rates would be what is left beside that.",
                next_step="Stop the other program, or measure anyway (--anyway).",
            )
        model, spec_problem = _model(job.request)
        job.emit(
            {
                "event": "chosen",
                "run_id": store.new_id(str(device["name"])),
                "device": {
                    **device,
                    "key": key,
                    "driver": _driver(nvml),
                    "catalogue": catalogue_id(device, nvml),
                },
                "software": software,
                "model": None if model is None else {name: model[name] for name in ("id", "layers")},
            }
        )
        if spec_problem:
            job.emit(
                {"event": "problem", "probe": "layer", "case": "", "kind": "not run", "message": spec_problem}
            )
        _groups(job, device, model, reader, before)
        _residual(job, model)
    finally:
        reader.close()
        locks.release(lock)
    cases = [event for event in job.events if event["event"] == "result"]
    problems = [event for event in job.events if event["event"] == "problem"]
    job.end(assemble.status_of(len(cases), problems), "" if cases else _why_nothing(problems))
    return lock


def _why_nothing(problems: list[dict[str, Any]]) -> str:
    first = problems[0]["message"] if problems else "no probe had a case for this device"
    return f"Nothing was measured: {first}"


def _facts(job: Job) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a first worker says about torch and the devices."""
    seen: list[Mapping[str, Any]] = []
    failures: list[Mapping[str, Any]] = []

    def note(event: Mapping[str, Any]) -> None:
        (failures if event["event"] == "problem" else seen).append(event)

    order = Order(
        device="cpu",
        depth=job.request["depth"],
        facts_only=True,
        cpu_only=job.request["device"] == "cpu",
        limit_s=FACTS_LIMIT_S,
        silence_s=FACTS_LIMIT_S,
    )
    job.emit({"event": "phase", "group": "devices"})
    run_group(order, stderr=job.stderr, emit=note, tick=lambda: None)
    facts = next((event for event in seen if event["event"] == "facts"), None)
    if facts is None:
        words = failures[0]["message"] if failures else "PyTorch did not answer."
        raise ProbeError(
            f"PyTorch could not be started: {words}",
            next_step="Reinstall it for this system, then try again.",
        )
    return dict(facts["software"]), [dict(device) for device in facts.get("devices", ())]


def _choose(
    wanted: str, software: Mapping[str, Any], devices: list[dict[str, Any]], nvml: LocalDevices
) -> dict[str, Any]:
    """The device to measure; raises `ProbeError` saying why it cannot be."""
    found = absence.absences(software, devices, nvml, system=platform.release())
    if not software.get("torch"):
        raise ProbeError(found[0].message, next_step=found[0].next_step)
    usable = [device for device in devices if not device.get("error")]
    if wanted == AUTO:
        blocking = [entry for entry in found if entry.kind not in {"no gpu", "mig", "wsl"}]
        if usable and usable[0]["kind"] == "cpu" and blocking:
            raise ProbeError(blocking[0].message, next_step=blocking[0].next_step)
        if usable:
            return usable[0]
    for device in usable:
        if wanted in {device["device"], device.get("uuid"), device["kind"], device["device"].split(":")[0]}:
            return device
    why = found[0] if found else None
    names = ", ".join(device["device"] for device in usable) or "none"
    raise ProbeError(
        why.message if why else f"{wanted}: there is no such device here; there are {names}.",
        next_step=why.next_step if why else "Choose one of those with --device.",
    )


def device_key(device: Mapping[str, Any]) -> str:
    """A file name that stands for exactly one device of this machine."""
    words = str(device.get("uuid") or f"{device['kind']}-{device['name']}-{device['device']}")
    return re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")[:100]


def _driver(nvml: LocalDevices) -> str | None:
    return nvml.devices[0].driver if nvml.devices else None


def catalogue_id(device: Mapping[str, Any], nvml: LocalDevices) -> str | None:
    """The catalogue's entry of a device; None for slices, processors and what is not in it, which have no datasheet here."""
    if device["kind"] == "cuda":
        for seen in nvml.devices:
            if seen.uuid and seen.uuid == device.get("uuid") and seen.accelerator is not None:
                return seen.accelerator.id
        return None
    if device["kind"] in {"rocm", "xpu"}:
        entry = match(str(device["name"]), None)
        return entry.id if entry is not None else None
    return None


def _residual(job: Job, model: Mapping[str, Any] | None) -> None:
    """The measured layers against the sum of their parts, where the run has what that takes."""
    run = assemble.run_of(job.events)
    if model is None or run is None:
        return
    from probes.residual import layer_rows

    try:
        rows = layer_rows(run, model["spec"])
    except RidgebeamError as error:
        words = f"The layer could not be compared with its parts: {error}"
        job.emit({"event": "problem", "probe": "layer", "case": "", "kind": "not compared", "message": words})
        return
    if rows:
        job.emit({"event": "residual", "rows": rows})


def _model(request: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The layers of the model that was asked for, or why there are none."""
    if not request.get("model") and not request.get("config_text"):
        return None, ""
    from presets import sources
    from probes.layer_shapes import layers_of

    try:
        if request.get("config_text"):
            source = sources.read_config_text(request["config_text"], name=request.get("model") or "")
        else:
            source = sources.read(request["model"], revision=request.get("revision") or None)
        return {"id": source.spec.id, "layers": layers_of(source.spec), "spec": source.spec}, ""
    except RidgebeamError as error:
        return None, str(error)


def _groups(
    job: Job,
    device: Mapping[str, Any],
    model: Mapping[str, Any] | None,
    reader: NvmlReader,
    before: Mapping[str, Any] | None,
) -> None:
    """All groups, one worker after another, with the device's state read beside them."""
    samples: list[dict[str, Any]] = []
    last_read = 0.0

    def tick() -> None:
        nonlocal last_read
        if time.monotonic() - last_read >= STATE_PERIOD_S:
            last_read = time.monotonic()
            load = reader.load()
            if load is not None:
                samples.append(load)

    chosen = [
        probe
        for probe in chosen_probes(job.request, str(device["kind"]))
        if probe.name != "layer" or model is not None
    ]
    for group, probes in registry.groups(tuple(chosen), together=device["kind"] == "cpu").items():
        first_sample = len(samples)
        job.emit({"event": "phase", "group": group})
        run_group(
            Order(
                device=str(device["device"]),
                depth=job.request["depth"],
                probes=probes,
                model=None if model is None else {"id": model["id"], "layers": model["layers"]},
                limit_s=float(job.request.get("group_limit_s") or _limit_s(job.request["depth"], probes)),
                silence_s=float(job.request.get("silence_s") or SILENCE_LIMIT_S),
            ),
            stderr=job.stderr,
            emit=lambda event, first=first_sample: job.emit(_tagged(event, samples[first:])),
            tick=tick,
        )
    if before is not None:
        job.emit(
            {
                "event": "state",
                "before": before,
                "load": device_state.summary(samples),
                "after": reader.identity(),
            }
        )
    elif reader.reason and device["kind"] == "cuda":
        job.emit({"event": "state", "reason": reader.reason})


def _limit_s(depth: str, probes: tuple[Probe, ...]) -> float:
    """Seconds that a worker may live: the usual limit, or twice what its probes are expected to take."""
    expected = sum(probe.quick_s if depth == QUICK else probe.full_s for probe in probes)
    return max(GROUP_LIMIT_S[depth], 2.0 * expected + START_S)


def _tagged(event: Mapping[str, Any], samples: list[dict[str, Any]]) -> Mapping[str, Any]:
    """A result with the tag `throttled` where heat or the board held the device back in its group."""
    if event["event"] == "result" and device_state.throttled(samples):
        return {**event, "tags": [*event.get("tags", ()), "throttled"]}
    return event


def chosen_probes(request: Mapping[str, Any], kind: str) -> tuple[Probe, ...]:
    """The probes that a request asks for and the device's kind has; `extra` are modules of the caller's own."""
    wanted = request.get("probes")
    found = [probe for probe in PROBES if kind in probe.devices and (wanted is None or probe.name in wanted)]
    found += [
        Probe(name=name, title=name, module=module, group=name, quick_s=5, full_s=5)
        for name, module in (request.get("extra") or {}).items()
    ]
    return tuple(found)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(sys.argv[1:]))
