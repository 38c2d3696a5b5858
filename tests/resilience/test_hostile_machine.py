"""Machines that work against us: no home, nothing that can be written, a clock that jumps."""

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from numba.core import caching
from published_run import a100

from calc.simulation import kept_code
from calc.simulation.compiled import compiled
from calc.simulation.kernels.blocks import ceil_div
from commands.patience import WORDS, patience
from presets import hub_cache
from presets.hub_cache import PUBLIC, HubCache
from probes import store

ROOT = Path(__file__).parents[2]
NOWHERE = "/proc/none"  # a folder that not even root can make
PLAIN = {"PATH": "/usr/bin:/bin"}


def ridgebeam(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", "import sys, cli; sys.exit(cli.main())", *arguments],
        cwd=ROOT,
        env={**PLAIN, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.parametrize(
    "home", [None, "/nonexistent", NOWHERE, ""], ids=["unset", "absent", "unwritable", "empty"]
)
def test_without_a_home_a_model_is_read_and_a_plan_made(home):
    environment = {} if home is None else {"HOME": home}
    done = ridgebeam(
        "plan",
        "Qwen/Qwen3-0.6B",
        "--rate",
        "1",
        "--input",
        "64",
        "--output",
        "16",
        "--gpu",
        "l4",
        "--json",
        **environment,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["plans"]
    assert "Traceback" not in done.stderr


def test_where_compiled_loops_cannot_be_kept_they_are_compiled_anew(monkeypatch):
    """No folder takes numba's cache, and none was filled before: the checkout and the user's folders are read-only."""

    def refuse(self):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    monkeypatch.setattr(kept_code._Filled, "ensure_cache_path", refuse)
    loop = compiled.__wrapped__(ceil_div)
    assert loop(7, 2) == 4
    assert loop.stats.cache_path is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that cannot be made")
@pytest.mark.torch
def test_a_run_that_cannot_be_stored_says_where_and_why():
    done = ridgebeam("probe", "--device", "cpu", "--quick", "--json", RIDGEBEAM_DATA_DIR=NOWHERE)
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert NOWHERE in error["message"]
    assert "RIDGEBEAM_DATA_DIR" in error["message"] + error.get("next_step", "")


@pytest.mark.parametrize("jump_s", [-10 * 365 * 86_400.0, 10 * 365 * 86_400.0], ids=["back", "forward"])
def test_a_clock_that_jumps_only_costs_a_reading(monkeypatch, tmp_path, jump_s):
    cache = HubCache(folder=tmp_path)
    key = ("http://hub", "me/model", "")
    cache.put(key, PUBLIC, "{}")
    assert cache.get(key, PUBLIC) is not None
    now = hub_cache.time.time()
    monkeypatch.setattr(hub_cache.time, "time", lambda: now + jump_s)
    assert cache.get(key, PUBLIC) is None
    assert HubCache(folder=tmp_path).get(key, PUBLIC) is None
    cache.put(key, PUBLIC, "{}")
    assert cache.get(key, PUBLIC) is not None


def test_a_run_that_a_wrong_clock_dated_into_the_future_is_not_the_newest(monkeypatch, tmp_path):
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    for name, started in (("wrong", "2999-01-01"), ("old", "2025-01-01"), ("new", "2026-01-01")):
        store.save({**a100(), "id": name, "started": f"{started}T00:00:00+00:00"})
    assert [run["id"] for run in store.history()] == ["new", "old", "wrong"]
    assert store.local_run(store.history())["id"] == "new"


def test_the_command_line_stands_a_pipe_that_closes():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", "import sys, cli; sys.exit(cli.main())", "formula", "--help"],
        cwd=ROOT,
        env={**PLAIN},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert "Traceback" not in done.stderr


def test_a_terminal_without_greek_letters_gets_an_escape():
    words = ("step", "Qwen/Qwen3-0.6B", "--gpu", "l4")
    done = ridgebeam(*words, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "\\xb5s" in done.stdout  # microseconds


def test_a_long_silence_is_explained_once(capsys):
    with patience(after_s=0.0):
        done = threading.Event()
        threading.Timer(0.2, done.set).start()
        done.wait(10)
    assert capsys.readouterr().err == f"{WORDS}\n"
    with patience(after_s=60.0):
        pass
    assert capsys.readouterr().err == ""
