"""The command line: `ridgebeam VERB`. Thin: it parses, lets a verb of `commands` run, and turns errors into exit codes.

Exit codes: 0 ok, 2 bad input, 3 infeasible or saturated, 4 source or probe unavailable. With --json exactly one JSON
object is printed, errors included.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from errno import EBADF
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import NoReturn

# The editable install maps this one module; the packages beside it are found from its folder, wherever it is called.
if (_ROOT := str(Path(__file__).resolve().parent)) not in sys.path:
    sys.path.insert(0, _ROOT)

from calc.errors import InputError, RidgebeamError
from commands import VERBS
from commands.arguments import OK, Verb

UNAVAILABLE, INTERRUPTED, TERMINATED = 4, 130, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; errors that a person can act on become a message and an exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without µ gets an escape, not a traceback
            stream.reconfigure(errors="backslashreplace")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)
    try:
        arguments = _parser().parse_args(words)
        return _answered(arguments.run, arguments)
    except RidgebeamError as error:
        if "--json" in words:
            print(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}))
        else:
            print(f"ridgebeam: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        _write_no_more()
        return OK
    except OSError as error:
        from presets.whole_file import FULL_DISK

        if error.errno not in {*FULL_DISK, EBADF}:
            raise
        _write_no_more()
        print(f"ridgebeam: the answer could not be written: {error.strerror}", file=sys.stderr)
        return UNAVAILABLE
    except KeyboardInterrupt:
        return INTERRUPTED


def _answered(run: Verb, arguments: argparse.Namespace) -> int:
    code = run(arguments)
    if sys.stdout is None:  # it was closed before we began (`>&-`)
        raise OSError(EBADF, os.strerror(EBADF))
    sys.stdout.flush()
    return code


def _write_no_more() -> None:
    """What is left of the answer goes nowhere, so that the interpreter does not try it again as it ends."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Being told to end unwinds like an interruption, so that nothing that a verb has started goes on without it."""
    raise SystemExit(TERMINATED)


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are InputErrors, so that --json also covers them."""

    def error(self, message: str) -> NoReturn:
        raise InputError("arguments", " ".join(sys.argv[1:]), message, next_step=f"See {self.prog} --help.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ridgebeam",
        description="LLM-serving capacity planner: which GPUs, how many, what users feel, what it costs.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        verb.add(verbs)
    return parser


if __name__ == "__main__":
    sys.exit(main())
