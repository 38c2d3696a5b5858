"""Console script `ridgebeam`: thin over the same functions that the pages call."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run one verb; the return value is the exit code."""
    parser = argparse.ArgumentParser(prog="ridgebeam", description="LLM-serving capacity planner")
    verbs = parser.add_subparsers(dest="verb", required=True)
    app = verbs.add_parser("app", help="open the web app on 127.0.0.1")
    app.add_argument("--port", type=int, default=8501, help="port on 127.0.0.1 (8501)")
    arguments = parser.parse_args(argv)
    return run_app(port=arguments.port)


def run_app(*, port: int) -> int:
    """Serve the web app on 127.0.0.1 until it is interrupted."""
    from streamlit.web import cli as streamlit_cli

    sys.argv = [
        "streamlit",
        "run",
        str(ROOT / "app.py"),
        "--server.address=127.0.0.1",
        f"--server.port={port}",
    ]
    return int(streamlit_cli.main(standalone_mode=False) or 0)


if __name__ == "__main__":
    sys.exit(main())
