"""Checkpoints downloaded from a hub on loopback: whole, in windows, resumed, and every way in which one can be wrong."""

import json
import shutil
from pathlib import Path

import hub_server as server_module
import numpy as np
import pytest
from hub_server import COMMIT
from safetensors_files import single
from test_config_text import QWEN3

from calc.errors import InputError, SourceError, SourceFault
from presets import hub_weights
from presets.checkpoint import INDEX_FILE, SINGLE_FILE
from presets.hub_weights import fetched

pytestmark = pytest.mark.hub

ID = "me/model"
ZEROS = single({f"layer.{i}.weight": (np.float16, (64, 32)) for i in range(6)})
DATA = 6 * 64 * 32 * 2
WEIGHTS = ZEROS[:-DATA] + np.random.default_rng(0).bytes(DATA)  # so that a byte out of place shows
WINDOW = 5_000
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def cache(hub_server, monkeypatch, tmp_path):
    """The cache folder that the downloads go to; windows smaller than the file, larger than its header."""
    assert len(WEIGHTS) / 4 > WINDOW
    monkeypatch.setenv("RIDGEBEAM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(hub_weights, "WINDOW_BYTES", WINDOW)
    return tmp_path / "cache"


@pytest.fixture
def repo(hub_server, cache):
    return hub_server.add(ID).put("config.json", QWEN3).put(SINGLE_FILE, WEIGHTS)


def failure(fault):
    with pytest.raises(SourceError) as caught:
        fetched(ID)
    assert caught.value.fault is fault
    return caught.value


def ranges(hub_server):
    return [request.range for request in hub_server.requests if request.path.endswith(".safetensors")]


def weights_in(cache):
    return sorted(path.name for path in cache.rglob("*.safetensors*"))


def test_a_file_comes_in_windows_once_and_byte_for_byte(repo, hub_server):
    folder = fetched(ID)
    assert (folder / SINGLE_FILE).read_bytes() == WEIGHTS
    asked = ranges(hub_server)
    assert asked[:2] == [f"bytes=0-{WINDOW - 1}", f"bytes={WINDOW}-{2 * WINDOW - 1}"]
    assert len(asked) == -(-len(WEIGHTS) // WINDOW)
    assert fetched(ID) == folder
    assert ranges(hub_server) == asked


def test_all_shards_of_an_index_come(hub_server, cache):
    repo = hub_server.add(ID).put("config.json", QWEN3)
    repo.put(INDEX_FILE, {"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}})
    for shard in SHARDS:
        repo.put(shard, WEIGHTS)
    folder = fetched(ID)
    assert [(folder / shard).read_bytes() for shard in SHARDS] == [WEIGHTS, WEIGHTS]


def test_without_weights_only_the_small_files_come(repo, hub_server):
    folder = fetched(ID, weights=False)
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    assert ranges(hub_server) == []


def test_a_download_goes_on_where_it_stopped(repo, hub_server, cache):
    repo.fault, repo.fault_on = f"down-from:{3 * WINDOW}", (SINGLE_FILE,)
    failure(SourceFault.UNREADABLE)
    assert weights_in(cache) == [f"{SINGLE_FILE}.part"]
    hub_server.requests.clear()
    repo.fault = ""
    assert (fetched(ID) / SINGLE_FILE).read_bytes() == WEIGHTS
    assert ranges(hub_server)[0] == f"bytes={3 * WINDOW}-{4 * WINDOW - 1}"
    assert weights_in(cache) == [SINGLE_FILE]


def test_a_beginning_too_short_to_tell_its_length_is_begun_again(repo, cache):
    folder = fetched(ID, weights=False)
    (folder / f"{SINGLE_FILE}.part").write_bytes(WEIGHTS[:20])
    assert (fetched(ID) / SINGLE_FILE).read_bytes() == WEIGHTS


def test_another_commit_does_not_go_on_with_the_old_ones_bytes(repo, monkeypatch):
    repo.fault, repo.fault_on = f"down-from:{WINDOW}", (SINGLE_FILE,)
    failure(SourceFault.UNREADABLE)
    repo.fault = ""
    newer = WEIGHTS[:-8] + b"otherend"
    repo.put(SINGLE_FILE, newer)
    monkeypatch.setattr(server_module, "COMMIT", COMMIT[::-1])
    folder = fetched(ID)
    assert folder.name == COMMIT[::-1]
    assert (folder / SINGLE_FILE).read_bytes() == newer


@pytest.mark.parametrize("stored", [WEIGHTS[:-10], WEIGHTS + b"more", WEIGHTS[: 2 * WINDOW]])
def test_a_file_that_is_not_as_long_as_its_header_says_is_not_kept(repo, cache, stored):
    repo.put(SINGLE_FILE, stored)
    error = failure(SourceFault.UNREADABLE)
    assert f"{len(WEIGHTS):,} bytes" in error.message
    assert weights_in(cache) == []


@pytest.mark.parametrize("stored", [b"", b"\0\0", b"<html>no weights here</html>"])
def test_a_file_that_is_no_safetensors_is_refused(repo, cache, stored):
    repo.put(SINGLE_FILE, stored)
    failure(SourceFault.UNREADABLE)
    assert SINGLE_FILE not in weights_in(cache)


@pytest.mark.parametrize("fault", ["truncated", "wrong-range", "ignores-ranges"])
def test_a_body_that_is_cut_or_of_another_range(repo, cache, fault):
    repo.fault, repo.fault_on = fault, (SINGLE_FILE,)
    if fault == "ignores-ranges":
        assert (fetched(ID) / SINGLE_FILE).read_bytes() == WEIGHTS
        return
    assert "broke off" in failure(SourceFault.UNREADABLE).message
    assert SINGLE_FILE not in weights_in(cache)


@pytest.mark.parametrize(
    ("missing", "fault"),
    [("config.json", SourceFault.NO_CONFIG), (SINGLE_FILE, SourceFault.NOT_FOUND)],
)
def test_what_the_repository_does_not_have(repo, missing, fault):
    del repo.files[missing]
    assert missing in failure(fault).message


def test_a_repository_that_is_not_there_leaves_no_folder(hub_server, cache):
    failure(SourceFault.NOT_FOUND)
    assert not cache.exists()


@pytest.mark.parametrize("name", ["config.json", INDEX_FILE])
def test_a_small_file_that_is_no_json_is_not_kept(repo, name):
    repo.put(INDEX_FILE, {"weight_map": {"a": SINGLE_FILE}})
    repo.fault, repo.fault_on = "html", (name,)
    failure(SourceFault.NOT_JSON)
    repo.fault = ""
    assert json.loads((fetched(ID) / name).read_bytes()) == json.loads(repo.files[name])


@pytest.mark.parametrize(
    "name", ["../../../up.safetensors", "/tmp/up.safetensors", "a/up.safetensors", "..safetensors", "up.bin"]
)
def test_an_index_cannot_name_a_place_outside(repo, cache, name):
    repo.put(INDEX_FILE, {"weight_map": {"a": name}})
    failure(SourceFault.UNREADABLE)
    assert [path for path in cache.parent.rglob("*up*") if path.is_file()] == []


@pytest.mark.parametrize("repo_id", ["../up", "..", "/etc/model", "me/../../up", "me/model/up", "me--model"])
def test_an_id_cannot_name_a_place_outside(hub_server, cache, repo_id):
    with pytest.raises(InputError, match="model id"):
        fetched(repo_id)
    assert not cache.exists()
    assert hub_server.requests == []


def test_a_file_larger_than_the_disk_is_given_up_before_the_disk_is_full(repo, hub_server, monkeypatch):
    usage = type(shutil.disk_usage("/"))(total=WINDOW * 3, used=WINDOW, free=WINDOW * 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    error = failure(SourceFault.NOT_STORED)
    assert f"{2 * WINDOW:,} are free" in error.message
    assert "RIDGEBEAM_CACHE_DIR" in error.next_step
    assert len(ranges(hub_server)) == 2


def test_a_disk_that_fills_up_on_the_way(repo, cache, monkeypatch):
    opened = Path.open

    def full(path, mode="r", *more, **named):
        if mode == "ab":
            raise OSError(28, "No space left on device")
        return opened(path, mode, *more, **named)

    monkeypatch.setattr(Path, "open", full)
    assert "No space left on device" in failure(SourceFault.NOT_STORED).message
    monkeypatch.setattr(Path, "open", opened)
    assert (fetched(ID) / SINGLE_FILE).read_bytes() == WEIGHTS


def test_a_folder_that_cannot_be_written(repo, cache):
    cache.write_text("a file, no folder", encoding="utf-8")
    error = failure(SourceFault.NOT_STORED)
    assert str(cache) in error.message
