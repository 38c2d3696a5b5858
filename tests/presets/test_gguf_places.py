"""GGUF files where they lie: here, split or cut short, and on a hub, read by ranges."""

import json

import numpy as np
import pytest
from gguf_files import Q, llama_tensors, write_whole
from test_gguf_header import TINY

from calc.errors import InputError, SourceError
from presets import gguf_file
from presets.sources import SourceKind, read

# ---- files here -----------------------------------------------------------------------------------------------------


def test_a_download_that_is_not_complete_is_told(tmp_path):
    path = write_whole(tmp_path / "m.gguf", "llama", TINY, llama_tensors(TINY))
    assert read(str(path)).warnings == ()
    path.write_bytes(path.read_bytes()[:-100_000])
    assert "download is not complete" in read(str(path)).warnings[0]


def test_a_split_file_is_read_whole_from_any_part(tmp_path):
    whole = read(str(write_whole(tmp_path / "m.gguf", "llama", TINY, llama_tensors(TINY))))
    write_whole(tmp_path / "s.gguf", "llama", TINY, llama_tensors(TINY), split_max_tensors=8)
    parts = sorted(tmp_path.glob("s-*.gguf"))
    assert len(parts) == 3
    for part in parts:
        source = read(str(part))
        assert source.spec.stacks == whole.spec.stacks
        assert (source.checkpoint.stored_bytes, source.checkpoint.n_files) == (
            whole.checkpoint.stored_bytes,
            3,
        )
    parts[1].unlink()
    with pytest.raises(InputError, match="this part of the split file is not there"):
        read(str(parts[0]))


def test_what_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "m.gguf").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(SourceError, match="does not begin with GGUF") as caught:
        read(str(tmp_path / "m.gguf"))
    assert caught.value.exit_code == 4


# ---- files on a hub -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gguf_repository(tmp_path_factory):
    """File name -> bytes: three formats, one of them with a large vocabulary, and a split file in a folder."""
    folder, files = tmp_path_factory.mktemp("gguf"), {}
    for label, kind, n_tokens in (("Q4_K_M", Q.Q4_K, 60_000), ("Q8_0", Q.Q8_0, 100), ("F16", Q.F16, 100)):
        path = write_whole(folder / f"{label}.gguf", "llama", TINY, llama_tensors(TINY, kind), n_tokens)
        files[f"tiny-{label}.gguf"] = path.read_bytes() + bytes(8_000_000)
    write_whole(folder / "s.gguf", "llama", TINY, llama_tensors(TINY, Q.Q6_K), split_max_tensors=12)
    for number, path in enumerate(sorted(folder.glob("s-*.gguf")), 1):
        files[f"Q6_K/tiny-Q6_K-{number:05d}-of-00002.gguf"] = path.read_bytes()
    return files


@pytest.fixture
def repository(hub_server, gguf_repository):
    gguf_file._READ.clear()
    return hub_server.add("me/Tiny-GGUF", files=dict(gguf_repository))


@pytest.mark.hub
@pytest.mark.parametrize(
    "pasted",
    [
        "me/Tiny-GGUF:Q4_K_M",
        "hf.co/me/Tiny-GGUF:q4_k_m",
        "me/Tiny-GGUF/tiny-Q4_K_M.gguf",
        "https://huggingface.co/me/Tiny-GGUF/blob/main/tiny-Q4_K_M.gguf",
        "https://huggingface.co/me/Tiny-GGUF/resolve/main/tiny-Q4_K_M.gguf?download=true",
    ],
)
def test_a_file_on_the_hub_is_read_by_its_header_alone(repository, hub_server, pasted):
    source = read(pasted)
    assert source.kind is SourceKind.HUB_GGUF
    assert source.id.startswith("me/Tiny-GGUF:")
    expected = sum(
        int(np.prod(shape)) * (4 if kind is Q.F32 else 144 / 256)
        for shape, kind in llama_tensors(TINY).values()
    )
    assert source.checkpoint.stored_bytes == expected
    ranges = [request.range for request in hub_server.requests if "resolve" in request.path]
    assert ranges[0] == "bytes=0-1048575"
    assert all(int(asked.rpartition("-")[2]) < 8_000_000 for asked in ranges)


@pytest.mark.hub
def test_a_header_is_not_fetched_twice_and_not_shared_between_readers(repository, hub_server):
    first = read("me/Tiny-GGUF:Q8_0")
    n_requests = len(hub_server.requests)
    assert read("me/tiny-gguf:Q8_0").spec == first.spec
    assert len(hub_server.requests) == n_requests
    repository.private = True
    repository.tokens = ("hf_Secret",)
    assert read("me/Tiny-GGUF:Q8_0", token="hf_Secret") == first
    assert len(hub_server.requests) > n_requests


@pytest.mark.hub
def test_a_split_file_on_the_hub_is_read_part_by_part(repository):
    source = read("me/Tiny-GGUF:Q6_K")
    assert source.checkpoint.n_files == 2
    assert dict(source.checkpoint.elements_by_format)["Q6_K"] == sum(
        int(np.prod(shape)) for shape, kind in llama_tensors(TINY).values() if kind is not Q.F32
    )


@pytest.mark.hub
@pytest.mark.parametrize("fault", ["ignores-ranges", "cdn"])
def test_ranges_that_are_ignored_or_served_elsewhere_give_the_same_model(repository, fault):
    plain = read("me/Tiny-GGUF:Q8_0")
    repository.fault, repository.fault_on = fault, ("tiny-Q8_0.gguf",)
    assert read("me/Tiny-GGUF/tiny-Q8_0.gguf").spec.stacks == plain.spec.stacks


@pytest.mark.hub
@pytest.mark.parametrize(
    ("pasted", "message", "step"),
    [
        ("me/Tiny-GGUF:Q5_K_M", "no GGUF file for Q5_K_M", "There are F16, Q4_K_M, Q6_K, Q8_0."),
        ("me/Tiny-GGUF/other.gguf", "has no file other.gguf", "tree/main"),
        ("me/Tiny-GGUF", "has GGUF files and no config.json", "me/Tiny-GGUF:Q4_K_M"),
    ],
)
def test_a_file_that_is_not_there_says_which_are(repository, pasted, message, step):
    with pytest.raises(SourceError, match=message) as caught:
        read(pasted)
    assert step in caught.value.next_step
    assert "paste its config.json" in caught.value.next_step


@pytest.mark.hub
@pytest.mark.parametrize("fault", ["html", "wrong-range", "reset", "status:500"])
def test_faults_while_the_header_is_read_are_named(repository, fault):
    repository.fault, repository.fault_on = fault, ("tiny-F16.gguf",)
    with pytest.raises(SourceError) as caught:
        read("me/Tiny-GGUF:F16")
    assert caught.value.next_step
