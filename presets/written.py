"""When files of this machine were written, for caches that know them by name: what was edited or replaced is read anew."""

from __future__ import annotations

from pathlib import Path


def written(*files: Path) -> str:
    """What tells apart two states of these files, by time and size; files that are not there count too."""
    return repr([_stamp(file) for file in files])


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
