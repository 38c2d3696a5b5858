"""One line on standard error that is written over as work goes on, where a terminal shows it: `StatusLine`."""

from __future__ import annotations

import sys
import time
from typing import Final

WIDTH: Final = 78
PAUSE_S: Final = 0.1  # between two writings: more often than anybody reads


class StatusLine:
    """The line of one command. Nothing is written where standard error goes to a file or a pipe."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()
        self._written_s: float | None = None

    def say(self, words: str) -> None:
        """Write over what stands, unless that was written just now."""
        now = time.monotonic()
        if not self.shown or (self._written_s is not None and now - self._written_s < PAUSE_S):
            return
        self._written_s = now
        print(f"{words:<{WIDTH}.{WIDTH}}", end="\r", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Blank the line, so that what is printed next does not stand beside it."""
        if self._written_s is not None:
            self._written_s = None
            print(" " * WIDTH, end="\r", file=sys.stderr, flush=True)
