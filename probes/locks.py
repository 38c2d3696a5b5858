"""One measurement per device at a time: a lock file with the process id and start time of its holder."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from calc.errors import ProbeError
from calc.json_text import NOT_JSON, parse_json
from probes.processes import is_alive, start_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who measures a device now."""

    pid: int
    started: str | None

    @property
    def alive(self) -> bool:
        return is_alive(self.pid, self.started)


def take(path: Path, *, device: str) -> None:
    """Create the lock, or raise `ProbeError` naming its holder. A lock whose holder is gone is taken over."""
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_name(f"{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    content = {"pid": os.getpid(), "started": start_time(os.getpid())}
    own.write_text(json.dumps(content), encoding="utf-8")
    try:
        for _ in range(3):
            try:
                os.link(own, path)  # atomic, and with its content: nobody sees an empty lock
            except FileExistsError:
                found = holder(path)
                if found is not None and found.alive:
                    raise ProbeError(
                        f"{device} is being measured already (process {found.pid}).",
                        next_step="Wait until that run has ended, or cancel it.",
                    ) from None
                _set_aside(path)
            else:
                return
    finally:
        own.unlink(missing_ok=True)
    raise ProbeError(f"The lock of {device} changes hands too fast.", next_step="Try again in a moment.")


def release(path: Path) -> None:
    """Remove the lock if this process holds it."""
    found = holder(path)
    if found is not None and found.pid == os.getpid():
        path.unlink(missing_ok=True)


def holder(path: Path) -> Holder | None:
    """Who holds the lock; None for no lock or one that cannot be read."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"), finite=True)
        return Holder(pid=int(content["pid"]), started=content.get("started"))
    except (OSError, KeyError, TypeError, *NOT_JSON):
        return None


def _set_aside(path: Path) -> None:
    """Move a dead holder's lock away; of two who try, one succeeds."""
    aside = path.with_name(f"{path.name}.stale.{uuid.uuid4().hex[:8]}")
    with suppress(OSError):
        path.rename(aside)
        found = holder(aside)
        if found is not None and found.alive:  # somebody else took it in between: give it back
            with suppress(OSError):
                os.link(aside, path)
        aside.unlink(missing_ok=True)
