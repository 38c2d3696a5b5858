"""`ridgebeam probe`: measure this machine's GPU or processor; the printed JSON is a profile for --profile."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from commands.arguments import OK, UNAVAILABLE, emit, verb, writable, write_file
from commands.status_line import StatusLine

POLL_S = 0.2


def add(verbs: Any) -> None:
    parser = verb(verbs, "probe", run, "measure this machine's GPU or processor")
    parser.add_argument("--device", default="auto", help="auto, cuda:0, a GPU's UUID, xpu:0, mps, cpu")
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument("--quick", action="store_true", help="under a minute (default)")
    depth.add_argument("--full", action="store_true", help="every size and format, some minutes")
    parser.add_argument("--model", default="", metavar="SOURCE", help="also measure a layer of this model")
    parser.add_argument("--out", metavar="FILE", help="also write the JSON to a file")
    parser.add_argument("--anyway", action="store_true", help="measure even while others use the device")


def run(arguments: argparse.Namespace) -> int:
    from calc.errors import ProbeError
    from probes import jobs, measured, sanity, store

    writable("--out", arguments.out)
    job = jobs.start(
        jobs.Request(
            device=arguments.device,
            depth="full" if arguments.full else "quick",
            model=arguments.model,
            anyway=arguments.anyway,
        )
    )
    try:
        progress = _follow(job)
    except (KeyboardInterrupt, SystemExit):
        jobs.cancel(job)
        raise
    if progress.run_id is None:
        raise ProbeError(progress.message or "Nothing was measured.", next_step=progress.next_step)
    found = store.load(progress.run_id)
    record = measured.profile_json(found)
    if arguments.out:
        write_file("--out", arguments.out, [json.dumps(record, indent=1)])
    lines = [
        f"{found['device']['name']}, {found['depth']}, {found['seconds'] or 0:.0f} s, {progress.status}",
        *([progress.message] if progress.message else []),
        *(finding.sentence for finding in sanity.findings(found)),
        *found["state"].get("remarks", ()),
        *sanity.unsteady(found),
        *_not_measured(found),
        f"stored as {found['id']}; use it with --gpu '{record['gpu']}' --profile FILE"
        + ("" if arguments.out else " (--out FILE writes that file)"),
    ]
    emit(arguments, record, lines)
    return OK if progress.status in {"complete", "partial"} else UNAVAILABLE


def _follow(job: str) -> Any:
    """Wait for the end, with the remaining time on standard error where somebody looks at it."""
    from probes import jobs

    line = StatusLine()
    while True:
        progress = jobs.progress(job)
        if not progress.running:
            line.clear()
            return progress
        line.say(
            f"{progress.fraction:4.0%}  about {progress.remaining_s or 0:.0f} s left  {progress.current}"
        )
        time.sleep(POLL_S)


def _not_measured(found: dict[str, Any]) -> list[str]:
    """Faults, not choices: a case that was left out for time is only counted."""
    faults = [problem for problem in found["problems"] if problem["kind"] != "left out"]
    left_out = len(found["problems"]) - len(faults)
    lines = [f"{p['probe']} {p['case']}: {p['kind']}: {p['message']}" for p in faults]
    if left_out:
        lines.append(f"{left_out} cases were left out for time.")
    return lines
