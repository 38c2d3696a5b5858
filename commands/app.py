"""`ridgebeam app`: serve the web app in the foreground, on this machine only."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from commands.arguments import OK, verb
from probes.listening import LOOPBACK, listening_socket
from probes.processes import WINDOWS

ROOT = Path(__file__).resolve().parents[1]


def add(verbs: Any) -> None:
    parser = verb(verbs, "app", run, f"open the web app on {LOOPBACK}")
    parser.add_argument("--port", type=int, default=8501)


def run(arguments: argparse.Namespace) -> int:
    listening_socket(arguments.port).close()  # Streamlit's own words for a port that is taken say no way out
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(ROOT / "app.py"),
        "--server.address",
        LOOPBACK,
    ]
    command += ["--server.port", str(arguments.port)]
    if not WINDOWS:  # this process becomes the server, so that whoever ends it ends the server
        os.chdir(ROOT)
        sys.stdout.flush()
        os.execv(sys.executable, command)  # noqa: S606 - our own argv, no shell
    try:
        return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - our own argv, no shell
    except KeyboardInterrupt:
        return OK
