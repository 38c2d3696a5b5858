"""The command line: `ridgebeam VERB`. Thin: it parses, calls the same functions as the pages, and prints.

Exit codes: 0 ok, 2 bad input, 3 infeasible or saturated, 4 source or probe unavailable. With --json exactly one JSON
object is printed, errors included.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from calc.errors import RidgebeamError

Verb = Callable[[argparse.Namespace], int]
ROOT = Path(__file__).resolve().parent


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; errors that a person can act on become a message and an exit code."""
    arguments = _parser().parse_args(argv)
    run: Verb = arguments.run
    try:
        return run(arguments)
    except RidgebeamError as error:
        if getattr(arguments, "json", False):
            print(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}))
        else:
            print(f"ridgebeam: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ridgebeam",
        description="LLM-serving capacity planner: which GPUs, how many, what users feel, what it costs.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    app = verbs.add_parser("app", help="open the web app on 127.0.0.1")
    app.add_argument("--port", type=int, default=8501)
    app.set_defaults(run=_app)
    return parser


def _app(arguments: argparse.Namespace) -> int:
    """Serve the app in the foreground, on this machine only."""
    import subprocess

    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(ROOT / "app.py"),
        "--server.address",
        "127.0.0.1",
    ]
    command += ["--server.port", str(arguments.port)]
    try:
        return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - our own argv, no shell
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
