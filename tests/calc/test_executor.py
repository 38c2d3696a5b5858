"""Where calculations run must not matter: in process, in other processes, on a cluster that loses a worker."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from calc.errors import InputError
from calc.executor import DaskCluster, LocalProcesses, SchedulerUnavailable, Serial, WorkersLost, executor_for
from calc.simulation.replicated import Experiment, Interval, repeated, run_all
from calc.simulation.rules import engine_rules
from calc.simulation.step_table import StepTable
from calc.workload import Lengths, LengthShape, Workload


def square(value):
    return value * value


def refuse(value):
    raise InputError("value", value, "this task always refuses")


def end_at_once(value):
    os._exit(value)


def slow_trace(argument):
    """Leave a mark that this argument was begun, take a while, and say who did it."""
    number, folder = argument
    Path(folder, f"{number}.{os.getpid()}").touch()
    time.sleep(0.15)
    return number, os.getpid()


def experiment():
    lengths = {
        "input": Lengths(mean_tokens=200, shape=LengthShape.LOGNORMAL, cv=1.0),
        "output": Lengths(mean_tokens=50),
    }
    return Experiment(
        rules=engine_rules("static", num_blocks=4000, batch_size=4, batch_timeout_s=0.2),
        step=StepTable.affine(fixed_s=5e-3, prefill_s=3e-5, decode_s=1e-4, kv_s=1e-7),
        workload=Workload(rate_per_s=5.0, **lengths),
        count=300,
    )


@pytest.fixture
def cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, processes=True
    ) as running:
        yield running


def test_local_processes_keep_the_order():
    assert Serial().map(square, range(5)) == [0, 1, 4, 9, 16]
    assert LocalProcesses(2).map(square, range(5)) == [0, 1, 4, 9, 16]
    assert LocalProcesses(2).map(square, []) == []
    assert isinstance(executor_for(None), LocalProcesses)
    assert isinstance(executor_for("tcp://127.0.0.1:1"), DaskCluster)


def test_an_error_of_a_task_is_raised_here():
    with pytest.raises(InputError, match="always refuses"):
        LocalProcesses(2).map(refuse, [1, 2])


def test_a_process_that_ends_is_said_and_not_dumped():
    with pytest.raises(WorkersLost, match="ended before its task did"):
        LocalProcesses(2).map(end_at_once, [1, 2])


def test_bad_places_are_refused():
    with pytest.raises(InputError, match="workers"):
        LocalProcesses(0)
    with pytest.raises(InputError, match="scheduler"):
        DaskCluster("localhost")


def test_no_scheduler_is_said(monkeypatch):
    monkeypatch.setattr("calc.executor.CONNECT_S", 0.5)
    with pytest.raises(SchedulerUnavailable, match="No Dask scheduler"):
        DaskCluster("tcp://127.0.0.1:9").map(square, [1])


def test_a_run_is_the_same_to_the_bit_wherever_it_runs():
    tasks = repeated(experiment(), 4)
    here, there = run_all(tasks, Serial()), run_all(tasks, LocalProcesses(2))
    assert here == there
    assert len({run["ttft_s"]["mean"] for run in here}) == 4


def test_a_killed_worker_loses_nothing_and_counts_nothing_twice(cluster, tmp_path):
    """Two workers; one is killed while it works. Every argument has one result, in order, from a worker that lived."""
    victim = int(next(iter(cluster.workers.values())).pid)
    arguments = [(number, str(tmp_path)) for number in range(40)]
    killed = []

    def kill_midway():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if len(list(tmp_path.glob(f"*.{victim}"))) >= 4:
                os.kill(victim, signal.SIGKILL)
                killed.append(len(list(tmp_path.iterdir())))
                return
            time.sleep(0.01)

    killer = threading.Thread(target=kill_midway)
    killer.start()
    results = DaskCluster(cluster.scheduler_address).map(slow_trace, arguments)
    killer.join()
    assert killed
    assert killed[0] < 40, "the worker was killed too late to lose anything"
    assert [number for number, _ in results] == list(range(40))
    begun = [path.name.split(".")[0] for path in tmp_path.iterdir()]
    assert set(begun) == {str(number) for number in range(40)}
    assert len(begun) > 40, "tasks of the killed worker were begun again"
    tasks = repeated(experiment(), 3)
    assert run_all(tasks, DaskCluster(cluster.scheduler_address)) == run_all(tasks, Serial())


def test_intervals_cover_the_mean_as_often_as_they_say():
    draw = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        interval = Interval.of(list(draw.normal(3.0, 1.0, 8)))
        covered += interval.low <= 3.0 <= interval.high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)
