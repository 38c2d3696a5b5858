"""From the events of a job to a run: what was measured, what was not and why, and how it ended. No torch, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from probes import device_state, store

COMPLETE, PARTIAL, CANCELLED, FAILED, INTERRUPTED = (
    "complete",
    "partial",
    "cancelled",
    "failed",
    "interrupted",
)


def run_of(events: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The run that a job's events describe; None where no device was chosen.

    A job that ended without saying so is "interrupted", and keeps every case it had measured.
    """
    latest: dict[str, dict[str, Any]] = {
        "begin": {},
        "end": {"status": INTERRUPTED, "message": "The measurement was ended from outside."},
    }
    cases: list[dict[str, Any]] = []
    problems: list[dict[str, Any]] = []
    open_case: tuple[str, str] | None = None
    for event in events:
        kind = str(event.get("event"))
        content = {key: value for key, value in event.items() if key != "event"}
        latest[kind] = content
        if kind == "start":
            open_case = (content["probe"], content["case"])
        elif kind in {"result", "problem"}:
            (cases if kind == "result" else problems).append(content)
            open_case = None
        elif kind == "again":  # a quicker measurement of a case
            same = (content["probe"], content["case"])
            cases = [content if (case["probe"], case["case"]) == same else case for case in cases]
    begin, end, chosen = latest["begin"], latest["end"], latest.get("chosen")
    state = dict(latest.get("state", {}))
    if "residual" in latest:
        state["layers"] = latest["residual"]["rows"]
    if chosen is None:
        return None
    if open_case is not None and end["status"] == INTERRUPTED:
        problems.append(
            {
                "probe": open_case[0],
                "case": open_case[1],
                "kind": "interrupted",
                "message": "The measurement ended during this case.",
            }
        )
    state["remarks"] = device_state.remarks(state)
    return {
        "kind": store.KIND,
        "schema": store.SCHEMA,
        "id": chosen["run_id"],
        "started": begin.get("started", ""),
        "seconds": end.get("seconds"),
        "depth": begin.get("depth", ""),
        "status": end["status"],
        "message": end.get("message", ""),
        "device": dict(chosen["device"]),
        "software": dict(chosen["software"]),
        "model": chosen.get("model"),
        "state": state,
        "cases": cases,
        "problems": problems,
    }


def status_of(cases: int, problems: Iterable[Mapping[str, Any]]) -> str:
    """Complete, partial (some cases failed) or failed (none was measured)."""
    if not cases:
        return FAILED
    faults = [
        problem for problem in problems if problem.get("kind") in {"killed", "hung", "device lost", "crashed"}
    ]
    return PARTIAL if faults else COMPLETE
