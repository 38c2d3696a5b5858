"""A disk that takes nothing more, for every writer: what was there stays whole, no half file is left, and it is said."""

import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from numba.core import caching
from published_run import a100

from calc.errors import InputError, ProbeError
from calc.simulation.compiled import compiled
from calc.simulation.kernels.blocks import ceil_div
from commands.arguments import write_file
from presets import profiles, whole_file
from presets.hub_cache import PUBLIC, HubCache
from presets.profiles.calibrated import save_calibration
from presets.whole_file import remove_parts, write_whole
from probes import jobs, store

ROOT = Path(__file__).parents[2]
GPU = "a100-sxm4-80gb"
KEY = ("http://hub", "me/model", "")


@contextmanager
def files_of_at_most(size):
    """No file of this process grows beyond that, as on a disk with that much left."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    return tmp_path


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_again():
    store.save({**a100(), "seconds": 1.0})


def calibrate():
    save_calibration(profiles.load(GPU), accelerator_id=GPU, model_id="m")


def read_a_hub():
    HubCache(folder=Path(os.environ["RIDGEBEAM_DATA_DIR"]) / "hub").put(KEY, PUBLIC, "x" * 9000)


def export():
    file = Path(os.environ["RIDGEBEAM_DATA_DIR"]) / "requests.csv"
    write_file("--csv", str(file), (f"{number},1,2\n" for number in range(9000)))


def measure():
    jobs.start(jobs.Request(device="cpu", config_text="x" * 9000))


WRITERS = {
    "probe run": (run_again, ProbeError),
    "calibration": (calibrate, InputError),
    "hub cache": (read_a_hub, None),
    "export": (export, InputError),
    "job": (measure, ProbeError),
}


@pytest.mark.parametrize(("write", "error"), WRITERS.values(), ids=WRITERS)
def test_what_was_there_stays_and_no_half_file_is_left(write, error, folder):
    if write is not measure:
        write()
    before = files(folder)
    with files_of_at_most(4000):
        if error is None:
            write()
        else:
            with pytest.raises(error, match="no space left"):
                write()
    assert files(folder) == before
    if write is run_again:
        assert [run["id"] for run in store.history()] == [a100()["id"]]


def test_an_answer_that_its_disk_does_not_take_is_an_error():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cli", "model", "Qwen/Qwen3-0.6B", "--json"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 4
    assert done.stderr == "ridgebeam: the answer could not be written: No space left on device\n"


def test_a_pipe_and_a_link_are_written_as_what_they_are(tmp_path):
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, ["after"])
    assert link.is_symlink()
    assert target.read_text() == "after"
    assert target.stat().st_mode & 0o777 == 0o640
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    write_whole(pipe, ["through", " it"])
    assert reader.communicate(timeout=10)[0] == "through it"
    assert {path.name for path in tmp_path.iterdir()} == {"target", "link", "pipe"}


def test_what_a_killed_writer_left_is_removed_a_day_later(tmp_path, monkeypatch):
    part = tmp_path / f".run.json.1234abcd{whole_file.PART}"
    part.write_text("{")
    remove_parts(tmp_path)
    assert part.exists()  # somebody may still be writing it
    os.utime(part, (0, 0))
    monkeypatch.setattr(
        whole_file.time, "time", lambda: -86_400.0
    )  # a clock that jumped back removes nothing
    remove_parts(tmp_path)
    assert part.exists()
    monkeypatch.undo()
    remove_parts(tmp_path)
    assert not part.exists()


# The compiled loops: numba's cache of machine code.


def twin():
    loop = compiled.__wrapped__(ceil_div)
    assert loop(7, 2) == 4
    return loop.stats


@pytest.fixture
def code(tmp_path, monkeypatch):
    """An empty folder for machine code."""
    monkeypatch.setattr(caching.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_full_disk_costs_only_compiling_anew(code):
    with files_of_at_most(500):
        twin()
    assert not list(code.rglob("*.tmp.*"))
    assert sum(twin().cache_hits.values()) == 0
    assert sum(twin().cache_hits.values()) == 1


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("left", [0, 0.1, 0.9])
def test_a_damaged_file_of_machine_code_is_made_anew(code, ending, left):
    twin()
    for file in code.rglob(f"*.{ending}"):
        whole = file.read_bytes()
        file.write_bytes(whole[: int(left * len(whole))])
    assert sum(twin().cache_hits.values()) == 0
    assert sum(twin().cache_hits.values()) == 1


def test_a_folder_that_was_filled_is_read_where_it_cannot_be_written(code, monkeypatch):
    twin()

    def refuse(self):
        raise OSError("Read-only file system")

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    assert sum(twin().cache_hits.values()) == 1


def test_index_of_machine_code_that_names_no_file(code):
    """As a process leaves it that is killed between the two files."""
    twin()
    for file in code.rglob("*.nbc"):
        file.unlink()
    twin()
    assert sum(twin().cache_hits.values()) == 1
