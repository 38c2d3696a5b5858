"""`plan --sweep-rate` where its rates really travel: other processes of the console script, and a cluster of two workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import main

ROOT = Path(__file__).resolve().parents[1]
WORDS = (
    "plan", "meta-llama/Meta-Llama-3.1-8B", "--input", "1000", "--output", "200", "--rate", "1", "--gpu", "l40s", "--json",
    "--sweep-rate",
)  # fmt: skip
# What pip writes for the entry point `cli:main`.
CONSOLE_SCRIPT = """import sys
from cli import main
if __name__ == "__main__":
    sys.exit(main())
"""


def one_by_one(capture):
    """Each rate alone: a sweep of one never leaves the process."""
    rows = []
    for rate in ("2", "4"):
        assert main([*WORDS, rate]) == 0
        rows += json.loads(capture.readouterr().out)["sweep"]
    return rows


def test_the_console_script_spreads_a_sweep_over_processes(capsys, tmp_path):
    script = tmp_path / "ridgebeam"
    script.write_text(CONSOLE_SCRIPT)
    done = subprocess.run(
        [sys.executable, script, *WORDS, "2", "4"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sweep"] == one_by_one(capsys)


def test_a_cluster_of_two_workers_answers_the_same(capsys):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, processes=True
    ) as running:
        capsys.readouterr()
        assert main([*WORDS, "2", "4", "--scheduler", running.scheduler_address]) == 0
    assert json.loads(capsys.readouterr().out)["sweep"] == one_by_one(capsys)
