"""A word on standard error where a command takes long: the first simulation of a machine compiles its loops."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SILENT_S: Final = 5.0
WORDS: Final = (
    "ridgebeam: still at work. The first simulation on a machine compiles its loops, a minute or two, once; "
    "long texts take many passes."
)


@contextmanager
def patience(after_s: float = SILENT_S, words: str = WORDS) -> Iterator[None]:
    """Say so where what runs within has not ended after a while; nothing where it has."""
    timer = threading.Timer(after_s, lambda: print(words, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
