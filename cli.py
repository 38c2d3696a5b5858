"""The command line: `ridgebeam VERB`. Thin: it parses, lets a verb of `commands` run, and turns errors into exit codes.

Exit codes: 0 ok, 2 bad input, 3 infeasible or saturated, 4 source or probe unavailable. With --json exactly one JSON
object is printed, errors included.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

# The editable install maps this one module; the packages beside it are found from its folder, wherever it is called.
if (_ROOT := str(Path(__file__).resolve().parent)) not in sys.path:
    sys.path.insert(0, _ROOT)

from calc.errors import InputError, RidgebeamError
from commands import VERBS
from commands.arguments import OK, Verb

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; errors that a person can act on become a message and an exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without µ gets an escape, not a traceback
            stream.reconfigure(errors="backslashreplace")
    try:
        arguments = _parser().parse_args(words)
        run: Verb = arguments.run
        return run(arguments)
    except RidgebeamError as error:
        if "--json" in words:
            print(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}))
        else:
            print(f"ridgebeam: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED


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
