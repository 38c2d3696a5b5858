"""Probes run for real, in child processes, on the CPU; everything is stored below a temporary folder."""

import os
import time
from pathlib import Path

import pytest

from probes import jobs, store

HERE = Path(__file__).parent
MODEL = "Qwen/Qwen3-0.6B"
LONGEST_S = 240


def finished(job_id, *, longest_s=LONGEST_S):
    """Follow a job to its end, as a page does."""
    deadline = time.monotonic() + longest_s
    while time.monotonic() < deadline:
        found = jobs.progress(job_id)
        if not found.running:
            return found
        time.sleep(0.1)
    jobs.cancel(job_id)
    return pytest.fail("the job did not end")


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(HERE))  # where the workers find the faulty probe
    return tmp_path


@pytest.fixture(scope="session")
def quick_run(tmp_path_factory):
    """One real quick measurement of this machine's processor, with a layer of a small model, shared by all tests."""
    before = os.environ.get("RIDGEBEAM_DATA_DIR")
    os.environ["RIDGEBEAM_DATA_DIR"] = str(tmp_path_factory.mktemp("quick"))
    try:
        found = finished(jobs.start(jobs.Request(device="cpu", model=MODEL)))
        assert found.run_id, found.message
        run = store.load(found.run_id)
    finally:
        if before is None:
            del os.environ["RIDGEBEAM_DATA_DIR"]
        else:
            os.environ["RIDGEBEAM_DATA_DIR"] = before
    return run
