"""What goes wrong costs one case and is said; real processes, really killed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from following import HERE, finished
from running import descendants, still_there, wait_until

from calc.errors import ProbeError
from probes import jobs, locks, store

pytestmark = pytest.mark.torch
ROOT = HERE.parents[1]


def request(probe, **more):
    return jobs.Request(device="cpu", probes=(), extra={probe: probe}, **more)


def wait_for_results(job_id, count, longest_s=90):
    deadline = time.monotonic() + longest_s
    while time.monotonic() < deadline:
        found = jobs.progress(job_id)
        assert found.running, found.message
        if sum(probe.measured for probe in found.probes) >= count:
            return found
        time.sleep(0.05)
    return pytest.fail("no results came")


def test_each_fault_costs_its_own_case_and_is_named(data_folder):
    found = finished(jobs.start(request("faulty_probe", silence_s=15.0, group_limit_s=150.0)))
    run = store.load(found.run_id)
    assert [case["case"] for case in run["cases"]] == ["fine", "last"]
    problems = {problem["case"]: problem for problem in run["problems"]}
    assert problems["raises"]["kind"] == "not run"
    assert "refused these operands" in problems["raises"]["message"]
    assert problems["wrong"]["kind"] == "wrong answer"
    assert problems["out_of_memory"]["kind"] == "out of memory"
    assert problems["unforeseen"]["kind"] == "crashed"
    assert "KeyError" in problems["unforeseen"]["message"]
    assert problems["killed"]["kind"] == "killed"
    assert "SIGKILL" in problems["killed"]["message"]
    assert problems["hangs"]["kind"] == "hung"
    assert found.status == run["status"] == "partial"


def test_a_runner_killed_midway_keeps_what_it_measured_and_leaves_no_worker(data_folder):
    job_id = jobs.start(request("slow_probe"))
    wait_for_results(job_id, 3)
    with pytest.raises(ProbeError, match="running already"):
        jobs.start(request("slow_probe"))
    runner = json.loads((data_folder / "probes/jobs" / job_id / "job.json").read_text())["pid"]
    workers = descendants(runner)
    assert len(workers) >= 2  # the worker, and what it has started
    os.kill(runner, signal.SIGKILL)
    found = finished(job_id)
    assert found.status == "interrupted"
    assert "SIGKILL" in found.message
    run = store.load(found.run_id)
    assert len(run["cases"]) >= 3
    assert run["status"] == "interrupted"
    wait_until(lambda: not still_there(workers), "a worker, or what it started, goes on", 10)
    assert jobs.current() is None


def test_cancel_keeps_what_was_measured_and_frees_the_device(data_folder):
    job_id = jobs.start(request("slow_probe"))
    wait_for_results(job_id, 2)
    lock = next((data_folder / "probes/locks").glob("*.lock"))
    assert locks.holder(lock).alive
    runner = json.loads((data_folder / "probes/jobs" / job_id / "job.json").read_text())["pid"]
    started = descendants(runner)
    jobs.cancel(job_id)
    found = finished(job_id, longest_s=20)
    assert not still_there(started)
    assert found.status == "cancelled"
    assert store.load(found.run_id)["cases"]
    assert not (locks.holder(lock) and locks.holder(lock).alive)


LIMITED = """
import json, resource, time
resource.setrlimit(resource.RLIMIT_FSIZE, (1200, 1200))
from probes import jobs
job = jobs.start(jobs.Request(device="cpu", probes=("launch",)))
while (found := jobs.progress(job)).running:
    time.sleep(0.1)
print(json.dumps([found.status, found.message, found.next_step, found.run_id]))
"""


def test_a_full_disk_is_said_and_earlier_results_stay(data_folder, quick_run):
    store.save(quick_run)
    limited = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, cwd=ROOT, timeout=120, check=True
    )
    status, message, next_step, run_id = json.loads(limited.stdout)
    assert status != "complete"
    assert "could not be written" in message
    assert "no space left" in message
    assert "RIDGEBEAM_DATA_DIR" in next_step
    assert run_id is None
    assert [run["id"] for run in store.history()] == [quick_run["id"]]
    assert not list((data_folder / "probes/runs").glob(".*"))


def test_a_lock_of_a_dead_process_is_taken_over_and_of_a_living_one_is_not(data_folder):
    path = data_folder / "probes/locks/device.lock"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"pid": os.getpid(), "started": "another process's start"}))
    locks.take(path, device="device")
    assert locks.holder(path).alive
    take = f"from pathlib import Path; from probes import locks; locks.take(Path({str(path)!r}), device='the GPU')"
    other = subprocess.run(
        [sys.executable, "-c", take], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert "the GPU is being measured already" in other.stderr
    locks.release(path)
    assert not path.exists()


def test_a_device_that_is_not_here_is_refused_by_name(data_folder):
    found = finished(jobs.start(jobs.Request(device="cuda:7")))
    assert found.status == "failed"
    assert found.run_id is None
    assert found.message
    assert found.next_step
