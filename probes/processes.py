"""Child processes that are certainly ours: identity by process id and start time, the end of a whole group, of orphans too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

WINDOWS = sys.platform == "win32"
GRACE_S = 3.0


def start_time(pid: int) -> str | None:
    """When a process started, as the system tells it; None where there is no such process.

    A process id alone may have been given to another program since.
    """
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.is_dir() and Path("/proc/self/stat").is_file():
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            return None
        return None if fields[0] in {"Z", "X"} else fields[19]
    if WINDOWS:
        question = ["powershell", "-NoProfile", "-Command", f"(Get-Process -Id {int(pid)}).StartTime.Ticks"]
    else:
        question = ["ps", "-o", "lstart=", "-p", str(int(pid))]
    try:
        answer = subprocess.run(question, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603 - fixed words and a number
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def is_alive(pid: int, started: str | None) -> bool:
    """Whether exactly that process still runs."""
    return started is not None and start_time(pid) == started


def new_group() -> dict[str, object]:
    """Arguments of Popen that put a child at the head of a process group of its own."""
    if WINDOWS:
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    return {"start_new_session": True}


def end_group(pid: int, started: str | None, *, grace_s: float = GRACE_S) -> None:
    """End the group that `pid` heads: politely, then for certain. Does nothing when that process is gone."""
    if not is_alive(pid, started):
        return
    if WINDOWS:
        subprocess.run(["taskkill", "/T", "/F", "/PID", str(int(pid))], capture_output=True, check=False)  # noqa: S603, S607 - fixed words and a number
        return
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, sign)
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline:
            if not is_alive(pid, started):
                return
            time.sleep(0.02)


def end_with_parent(*, before: Callable[[], None] | None = None) -> None:
    """From now on this process ends when its standard input closes: its parent closed it, or died in whatever way.

    A process at the head of its group takes the group along, because its own children would outlive it. `before` is
    called first. The parent must hold the other end of a pipe open as long as the process shall live.
    """

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            continue
        if before is not None:
            before()
        if not WINDOWS and os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(0)

    threading.Thread(target=wait, name="end with parent", daemon=True).start()


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    usual = {
        "SIGKILL": "; out of memory is the usual cause",
        "SIGSEGV": "; a library crashed",
        "SIGBUS": "; memory or disk is the usual cause",
        "SIGILL": "; a library was built for another processor",
    }
    return f"was ended by {name}{usual.get(name, '')}"
