"""Writing a file whole or not at all: a full disk, a killed process or a lost connection never leaves half of one."""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from calc.units import DAY_S

FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PART: Final = ".part"


def write_whole(target: Path, text: Iterable[str]) -> None:
    """Write UTF-8 text beside `target` and put it in its place once all of it is on the disk; raises OSError.

    What is no regular file (a pipe, a terminal) is written straight, and so is a file in a folder that takes no other.
    Where the disk is full the file from before stays, and the part is removed.
    """
    target = target.resolve() if target.is_file() else target  # a link stays a link
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}{PART}")
    try:
        file = None if target.exists() and not target.is_file() else part.open("w", encoding="utf-8")
    except PermissionError:
        if not target.exists():
            raise
        file = None
    if file is None:
        with target.open("w", encoding="utf-8") as straight:
            straight.writelines(text)
        return
    try:
        with file:
            file.writelines(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    finally:  # it is no longer there once it has taken the target's place
        with suppress(OSError):
            part.unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Remove what writers that were killed left in a folder of ours; what is younger than a day may still be written."""
    with suppress(OSError):
        for part in folder.glob(f".*{PART}"):
            if time.time() - part.stat().st_mtime > DAY_S:
                part.unlink(missing_ok=True)


def why(error: OSError) -> str:
    """What a failed write says to a person."""
    return "no space left" if error.errno in FULL_DISK else error.strerror or type(error).__name__
