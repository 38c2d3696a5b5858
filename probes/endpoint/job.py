"""A load test in a process of its own, followed by polling: for pages, which may not wait, and for the command line.

The process gets its question, API key included, on standard input; its events go to a temporary file that is read from where
the last reading ended. Ending a job ends exactly that process, by its own handle. Its standard input stays open as long as
there is a `Job`: when that is gone (a page left for good, an app killed), the process ends too and sends nothing more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calc.endpoint.plan import TestPlan
from calc.endpoint.run import EndpointRun, run_from_json
from calc.errors import InputError, ProbeError
from calc.json_text import NOT_JSON, parse_json
from presets.deployment import Deployment
from probes.endpoint.dialects import Api
from probes.endpoint.safety import ApiKey, Policy, checked_target

ROOT = Path(__file__).resolve().parents[2]
GRACE_S = 3.0
SPARE_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to measure. The key prints as dots."""

    url: str
    api: Api = Api.CHAT
    model: str = ""
    plan: TestPlan = field(default_factory=TestPlan)
    key: ApiKey = field(default_factory=ApiKey)
    deployment: Deployment = Deployment.LOCAL

    def check(self) -> None:
        """Raise InputError at once for a URL that will be refused."""
        checked_target(self.url, Policy.from_environment(deployment=self.deployment))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """Where a job stands: requests done of those planned, the stage, then its run or its error."""

    running: bool
    done: int
    total: int
    stage: str
    failures: int
    model: str
    run: EndpointRun | None
    record: dict[str, Any] | None
    error: ProbeError | None


class Job:
    """One running load test. `start` it, ask `state()` until it no longer runs; `cancel()` ends it."""

    def __init__(
        self, process: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str], limit_s: float
    ) -> None:
        self._process, self._folder = process, folder  # the folder goes with the job
        self._events = Path(folder.name) / "events.jsonl"
        self._errors = Path(folder.name) / "errors.txt"
        self._until = time.monotonic() + limit_s
        self._seen: list[dict[str, Any]] = []
        self._offset = 0
        self._cancelled = False
        self._failures = 0
        self._last: dict[str, Any] = {}
        weakref.finalize(self, _let_go, process)

    @classmethod
    def start(cls, question: Question) -> Job:
        """Start measuring; raises InputError for a refused URL, ProbeError where no process can be started."""
        question.check()
        folder = tempfile.TemporaryDirectory(prefix="ridgebeam-", ignore_cleanup_errors=True)
        place = Path(folder.name)
        try:
            with (place / "events.jsonl").open("wb") as events, (place / "errors.txt").open("wb") as errors:
                process = subprocess.Popen(
                    [sys.executable, "-m", "probes.endpoint.worker"],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=events,
                    stderr=errors,
                )
        except OSError as error:
            raise ProbeError(f"The measuring process could not be started: {error}.") from error
        words = {
            "url": question.url,
            "api": str(question.api),
            "model": question.model,
            "plan": question.plan.as_json(),
            "key": question.key.value,
            "deployment": str(question.deployment),
            "folder": folder.name,
        }
        with suppress(OSError):  # where it ended before it could be asked, `state` says how
            if process.stdin is not None:
                process.stdin.write(json.dumps(words).encode() + b"\n")
                process.stdin.flush()
        return cls(process, folder, question.plan.total_limit_s + SPARE_S)

    def state(self) -> JobState:
        """Where it stands now; a job past its limit is ended."""
        running = self._process.poll() is None
        if running and time.monotonic() > self._until:
            self.cancel()
            running = False
        if not running:
            _let_go(self._process)
        self._read()
        result = next((e for e in self._seen if e["event"] == "result"), None)
        facts = next((e for e in self._seen if e["event"] == "facts"), {})
        run, unreadable = None, None
        if result is not None:
            try:
                run = run_from_json(result["run"])
            except InputError as error:
                unreadable = ProbeError(
                    f"The load test's result cannot be used: {error}", next_step="Measure again."
                )
        return JobState(
            running=running and result is None,
            done=int(self._last.get("done", 0)),
            total=int(self._last.get("total", 0)),
            stage=str(self._last.get("stage", "starting")),
            failures=self._failures,
            model=str(facts.get("model", "")),
            run=run,
            record=None if run is None or result is None else result["run"],
            error=unreadable or (None if running or result is not None else self._why()),
        )

    def _read(self) -> None:
        with self._events.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        for line in data[:whole].splitlines():
            with suppress(*NOT_JSON):  # a library may print, too
                self._take(parse_json(line))

    def _take(self, event: Any) -> None:
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            if event["event"] == "progress":
                self._last = event
                self._failures += event.get("fault") is not None
            else:
                self._seen.append(event)

    def _why(self) -> ProbeError:
        if self._cancelled:
            return ProbeError("The load test was cancelled.", next_step="Nothing more is sent.")
        error = next((e for e in self._seen if e["event"] == "error"), None)
        if error is not None:
            return ProbeError(error["message"], next_step=error["next_step"])
        words = self._errors.read_bytes()[-2000:].decode("utf-8", errors="replace").strip().splitlines()
        return ProbeError(
            f"The load test ended with code {self._process.returncode}. {words[-1] if words else ''}".strip(),
            next_step="Measure again.",
        )

    def cancel(self) -> None:
        """End the process: politely, then for certain."""
        if self._process.poll() is not None:
            _let_go(self._process)
            return
        self._cancelled = True
        self._process.terminate()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _let_go(self._process)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe that the process lives by."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
