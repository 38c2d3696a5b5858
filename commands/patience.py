"""A word on standard error where a command takes long, and how far it is where a terminal shows it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from commands.status_line import StatusLine

SILENT_S: Final = 5.0
WORDS: Final = (
    "ridgebeam: still at work. The first simulation on a machine compiles its loops, a minute or two, once; "
    "long texts take many passes."
)


@contextmanager
def patience(after_s: float = SILENT_S, words: str = WORDS) -> Iterator[Callable[[str], None]]:
    """Say so where what runs within has not ended after a while; nothing where it has.

    Yields what tells a terminal how far it is; from its first word on, nobody has to be asked for patience.
    """
    timer = threading.Timer(after_s, lambda: print(words, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    line = StatusLine()

    def told(far: str) -> None:
        if line.shown:
            timer.cancel()
            line.say(far)

    try:
        yield told
    finally:
        timer.cancel()
        line.clear()
