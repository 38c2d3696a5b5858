"""Ended in the middle of its work, in whatever way: what was stored is whole, nothing goes on, the next start works."""

import gc
import json
import shutil
import signal
import subprocess
import sys

import pytest
from llama_server import write_model
from published_run import a100
from running import ROOT, app, descendants, free_port, healthy, still_there, verb, wait_until
from visitor import visiting

from calc.endpoint.plan import TestPlan
from presets import profiles
from presets.profiles.calibrated import save_calibration, with_calibration
from probes import jobs, store
from probes.endpoint.job import Job, Question

pytestmark = pytest.mark.endpoint
LIFE_S = 240
AT_ONCE_S = 15  # on a busy machine; the app itself needs a quarter of a second
GPU, MODEL = "a100-sxm4-80gb", "Qwen/Qwen3-0.6B"


@pytest.fixture(scope="module")
def llama_url(tmp_path_factory):
    model = write_model(tmp_path_factory.mktemp("gguf") / "tiny.gguf", layers=2)
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/llama_server.py"), str(model), "2", str(LIFE_S)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield next(line.split()[1] for line in server.stdout if line.startswith("listening"))
    server.kill()
    server.wait()
    server.stdout.close()


@pytest.fixture(autouse=True)
def interrupts_reach_children():
    """Tests that a shell started in its background ignore interrupts, and children inherit that; a handler they do not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path / "data"


def busy(port, llama_url):
    """Four visitors: a probe, a load test, a simulation, a proof; all of them under way."""
    with (
        visiting(port) as prober,
        visiting(port) as tester,
        visiting(port) as player,
        visiting(port) as planner,
    ):
        prober.open("this-gpu").open("this-gpu", pressed=["probe_start"])
        tester.open("endpoint").open("endpoint", values={"endpoint_url": llama_url})
        tester.open("endpoint", values={"endpoint_url": llama_url}, pressed=["endpoint_start"])
        player.open("simulate", "sim_n=100000").open(
            "simulate", "sim_n=100000", pressed=["sim-run"], wait=False
        )
        planner.open("").open("", pressed=["prove"], wait=False)
        job = wait_until(jobs.current, "no probe runs")
        wait_until((store.folder() / "jobs" / job / "events.jsonl").is_file, "the probe says nothing")
        wait_until(lambda: list((store.folder().parents[1] / "temporary").iterdir()), "no load test runs")
        return job


@pytest.mark.torch
def test_an_app_that_is_ended_leaves_what_is_stored_and_nothing_that_goes_on(data_folder, llama_url):
    """Killed, started again on the same port, then told to end; the probe alone goes on, and is found again."""
    store.save(a100())
    fitted = profiles.load(GPU)
    kept = save_calibration(fitted, accelerator_id=GPU, model_id=MODEL)
    port, measured = free_port(), []
    for sign in (signal.SIGKILL, signal.SIGTERM):
        with app(port) as (server, _):
            with visiting(port) as visitor:
                visitor.open("this-gpu")
                assert not visitor.exceptions
                assert any("A100" in words for words in visitor.said)
            job = busy(port, llama_url)
            started = descendants(server.pid)
            runner = json.loads((store.folder() / "jobs" / job / "job.json").read_text())["pid"]
            probing = {runner, *descendants(runner)}
            server.send_signal(sign)
            server.wait(AT_ONCE_S)
        others = set(started) - probing
        assert others, "no load test ran"
        wait_until(lambda others=others: not still_there(others), f"{others} go on after {sign.name}")
        assert not list((data_folder.parent / "temporary").glob("ridgebeam-*"))
        assert not healthy(port)
        assert jobs.current() == job
        assert jobs.progress(job).running
        jobs.cancel(job)
        found = jobs.progress(job)
        assert not found.running
        measured += [found.run_id] if found.run_id else []
        assert not still_there(probing)
    assert {run["id"] for run in store.history()} == {a100()["id"], *measured}
    assert store.load(a100()["id"]) == store.checked(a100())
    assert with_calibration(fitted, kept, accelerator_id=GPU, model_id=MODEL).device == fitted.device
    assert not [file for file in data_folder.rglob("*.part") if file.is_file()]


SWEEP = (
    "plan",
    MODEL,
    "--rate",
    1,
    "--input",
    512,
    "--output",
    256,
    "--tpot",
    0.05,
    "--verify",
    "--sweep-rate",
)


@pytest.mark.torch
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_verb_that_is_ended_takes_along_what_it_started(sign, data_folder, llama_url):
    """A load test, a sweep over processes, the reference engine."""
    running = [
        verb("bench", llama_url, "--prompts", 2048, "--limit-s", 60),
        verb(*SWEEP, *range(1, 40)),
        verb("engine", "--random", "--parameters", 1_000_000, "--port", 0),
    ]
    least = (1, 2, 1)
    try:
        for one, count in zip(running, least, strict=True):
            wait_until(lambda one=one, count=count: len(descendants(one.pid)) >= count, "it starts nothing")
        started = [pid for one in running for pid in descendants(one.pid)]
        for one in running:
            one.send_signal(sign)
        for one in running:
            one.wait(AT_ONCE_S)
        wait_until(lambda: not still_there(started), f"{started} go on after {sign.name}")
    finally:
        for one in running:
            one.kill()
            one.wait()
    codes = {signal.SIGKILL: {-9}, signal.SIGTERM: {143}, signal.SIGINT: {0, 130}}
    assert {one.returncode for one in running} <= codes[sign]
    if sign != signal.SIGKILL:
        assert not [*(data_folder.parent / "temporary").iterdir()]
    shutil.rmtree(data_folder, ignore_errors=True)


def test_a_load_test_that_nobody_follows_any_more_sends_no_more(data_folder, llama_url):
    """As when a browser's tab is closed and its session is dropped."""
    job = Job.start(Question(url=llama_url, plan=TestPlan(prompt_lengths=(1024, 2048), total_limit_s=60.0)))
    process = job._process.pid
    wait_until(lambda running=job: running.state().done, "nothing is sent")
    del job
    gc.collect()
    wait_until(lambda: not still_there([process]), "it goes on", AT_ONCE_S)
