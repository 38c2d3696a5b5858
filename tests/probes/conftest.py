"""Probes run for real, in child processes, on the CPU; everything is stored below a temporary folder."""

import os

import pytest
from following import HERE, finished

from probes import jobs, store

MODEL = "Qwen/Qwen3-0.6B"


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
