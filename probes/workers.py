"""Running workers: start one for a group, pass its events on, keep its time limits, go on after a case that it died of."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from probes.events import parse_line
from probes.processes import end_group, how_it_ended, new_group, start_time
from probes.registry import Probe
from probes.worker_codes import BAD_CONTEXT

ROOT = Path(__file__).resolve().parents[1]
POLL_S = 0.05
MOST_RESTARTS = 4
LOADING_S = 60.0  # before its first word a worker loads torch, which a busy machine makes long
LAST_WORDS = 400

Emit = Callable[[Mapping[str, Any]], None]


@dataclass(slots=True, kw_only=True)
class Order:
    """What a worker is told, and how long it may take. `environment`: added to the own one."""

    device: str
    depth: str
    probes: Sequence[Probe] = ()
    model: Mapping[str, Any] | None = None
    facts_only: bool = False
    cpu_only: bool = False
    limit_s: float = 60.0
    silence_s: float = 45.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def text(self, done: Sequence[tuple[str, str]]) -> str:
        return json.dumps(
            {
                "device": self.device,
                "depth": self.depth,
                "probes": [{"name": probe.name, "module": probe.module} for probe in self.probes],
                "model": self.model,
                "facts_only": self.facts_only,
                "cpu_only": self.cpu_only,
                "done": [list(pair) for pair in done],
            }
        )


def run_group(order: Order, *, stderr: Path, emit: Emit, tick: Callable[[], None]) -> None:
    """Run a group to its end. A worker that dies, hangs or loses its device costs the case that it was in."""
    done: list[tuple[str, str]] = []
    deadline = time.monotonic() + order.limit_s
    for attempt in range(MOST_RESTARTS + 1):
        open_case, code, hung = _run_once(order, done, deadline, stderr=stderr, emit=emit, tick=tick)
        if code == 0 and not hung:
            return
        if code == BAD_CONTEXT:  # the worker has said so, case by case
            kind, words = "", ""
        elif hung:
            kind, words = "hung", f"Nothing was heard for {hung:.0f} s, so the measuring process was ended."
        else:
            kind = "killed" if code < 0 else "crashed"
            words = f"The measuring process {how_it_ended(code)}. {last_words(stderr)}".strip()
        if kind:
            probe, case = open_case or (order.probes[0].name if order.probes else "facts", "")
            emit({"event": "problem", "probe": probe, "case": case, "kind": kind, "message": words})
            if open_case:
                done.append(open_case)
        if (kind and open_case is None) or time.monotonic() > deadline or attempt == MOST_RESTARTS:
            return


def _run_once(
    order: Order,
    done: list[tuple[str, str]],
    deadline: float,
    *,
    stderr: Path,
    emit: Emit,
    tick: Callable[[], None],
) -> tuple[tuple[str, str] | None, int, float]:
    """(case that was open at the end, exit code, seconds of silence if it was ended for that)."""
    open_case: tuple[str, str] | None = None
    heard, silence_s = time.monotonic(), max(order.silence_s, LOADING_S)
    with worker_process(order, done, stderr=stderr) as (process, lines):
        started = start_time(process.pid)
        while True:
            try:
                line = lines.get(timeout=POLL_S)
            except queue.Empty:
                tick()
                now = time.monotonic()
                if now - heard > silence_s or now > deadline:
                    end_group(process.pid, started, grace_s=0.5)
                    process.wait()
                    return open_case, process.returncode, now - heard
                continue
            if line is None:
                return open_case, process.wait(), 0.0
            heard, silence_s = time.monotonic(), order.silence_s
            event = parse_line(line)
            if event is None:
                continue
            open_case = _note(event, open_case, done)
            emit(event)


def _note(
    event: Mapping[str, Any], open_case: tuple[str, str] | None, done: list[tuple[str, str]]
) -> tuple[str, str] | None:
    """Keep track of the open case and of those that are over."""
    if event["event"] == "start":
        return event["probe"], event["case"]
    if event["event"] in {"result", "problem"}:
        done.append((event["probe"], event["case"]))
        return None
    return open_case


@contextmanager
def worker_process(
    order: Order, done: Sequence[tuple[str, str]], *, stderr: Path
) -> Iterator[tuple[subprocess.Popen[str], queue.SimpleQueue[str | None]]]:
    """A worker and the lines that it prints; None after the last. It ends with this block, whatever happens."""
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **order.environment,
    }
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [environment.get("PYTHONPATH", "")])]
    )
    with stderr.open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "probes.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=environment,
            **new_group(),  # type: ignore[call-overload]
        )
    started = start_time(process.pid)
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    try:
        with suppress(BrokenPipeError):
            if process.stdin is not None:
                process.stdin.write(order.text(done) + "\n")
                process.stdin.flush()
        yield process, lines
    finally:
        end_group(process.pid, started, grace_s=0.5)
        with suppress(BrokenPipeError, OSError):
            if process.stdin is not None:
                process.stdin.close()
        process.wait()


def _read(pipe: IO[str] | None, lines: queue.SimpleQueue[str | None]) -> None:
    try:
        for line in pipe or ():
            lines.put(line)
    finally:
        lines.put(None)


def last_words(stderr: Path) -> str:
    """The last line that a worker wrote to its standard error, shortened."""
    try:
        lines = stderr.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][-LAST_WORDS:] if lines else ""
