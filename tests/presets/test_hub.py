"""Models read from a hub on loopback through the real client: what is fetched, what is exact, what is cached."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hub_server import COMMIT, INFO
from safetensors_files import sharded, single
from test_config_text import QWEN3

from calc.errors import InputError, RidgebeamError, SourceError
from calc.parameters import count_parameters
from presets import hub
from presets.hub_cache import HubCache
from presets.model_ids import HubReference
from presets.sources import SourceKind, read, read_config_text

pytestmark = pytest.mark.hub

TENSORS = {f"layer.{i}.weight": (np.float16, (i + 1, 32)) for i in range(12)} | {
    "norm.weight": (np.float32, (32,)),
    "packed.weight": (np.int32, (8, 32)),
}
STORED = sum((i + 1) * 32 * 2 for i in range(12)) + 32 * 4 + 8 * 32 * 4


@pytest.fixture
def qwen(hub_server):
    repo = hub_server.add("me/My-Model", gated=False)
    return (
        repo.put("config.json", QWEN3).put("README.md", b"# hello").put("model.safetensors", single(TENSORS))
    )


@pytest.mark.parametrize(
    "pasted",
    ["me/My-Model", " me / My-Model ", "https://huggingface.co/me/My-Model/tree/main", "hf.co/me/My-Model"],
)
def test_an_id_and_its_urls_read_the_same_model(qwen, pasted):
    source = read(pasted)
    assert (source.kind, source.id, source.revision) == (SourceKind.HUB, "me/My-Model", COMMIT)
    assert count_parameters(source.spec).total == 596_049_920
    assert COMMIT in source.origin


def test_stored_bytes_are_those_of_the_headers(qwen):
    facts = read("me/My-Model").checkpoint
    assert facts.stored_bytes == STORED
    assert dict(facts.bytes_by_format) == {"F16": STORED - 128 - 1024, "F32": 128, "I32": 1024}
    assert facts.n_tensors == 14


def test_weights_are_only_read_by_range(qwen, hub_server):
    read("me/My-Model")
    weights = [request for request in hub_server.requests if "safetensors" in request.path]
    assert [request.range for request in weights] == ["bytes=0-99999"]


def test_a_header_longer_than_the_first_window_is_read_in_two(hub_server):
    tensors = {f"a.very.long.name.of.a.tensor.{i:040d}": (np.int8, (2,)) for i in range(1200)}
    data = single(tensors)
    length = int.from_bytes(data[:8], "little")
    assert length > 100_000
    hub_server.add("me/long").put("config.json", QWEN3).put("model.safetensors", data)
    assert read("me/long").checkpoint.stored_bytes == 2400
    ranges = [request.range for request in hub_server.requests if "safetensors" in request.path]
    assert ranges == ["bytes=0-99999", f"bytes=100000-{7 + length}"]


@pytest.mark.parametrize("fault", ["ignores-ranges", "cdn"])
def test_servers_that_ignore_ranges_or_redirect_to_storage_give_the_same_facts(hub_server, fault):
    repo = hub_server.add("me/My-Model", fault=fault, fault_on=("model.safetensors",))
    repo.put("config.json", QWEN3).put("model.safetensors", single(TENSORS) + bytes(3_000_000))
    assert read("me/My-Model").checkpoint.stored_bytes == STORED


@pytest.mark.parametrize("offers_all_headers", [True, False])
@pytest.mark.parametrize("n_shards", [2, 9])
def test_shards_are_summed_one_by_one_or_by_one_request(hub_server, n_shards, offers_all_headers):
    repo = hub_server.add("me/big", offers_all_headers=offers_all_headers)
    repo.put("config.json", QWEN3)
    for name, data in sharded(TENSORS, n_shards).items():
        repo.put(name, data)
    facts = read("me/big").checkpoint
    assert (facts.stored_bytes, facts.n_files, facts.n_tensors) == (STORED, n_shards, 14)
    one_by_one = [path for path in hub_server.paths() if "/resolve/" in path and "-of-" in path]
    assert len(one_by_one) == (0 if n_shards == 9 and offers_all_headers else n_shards)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "https://evil.example/x.safetensors", "a/../b.safetensors", 7]
)
def test_an_index_that_names_other_places_is_not_followed(hub_server, name):
    repo = hub_server.add("me/evil").put("config.json", QWEN3)
    repo.put("model.safetensors.index.json", {"weight_map": {"a": name}})
    source = read("me/evil")
    assert source.checkpoint is None
    assert "names the file" in source.warnings[0]
    assert not [path for path in hub_server.paths() if "etc" in path or "evil.example" in path]


def test_modelopt_formats_come_from_their_own_file(hub_server):
    quantization = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    hub_server.add("me/fp8").put("config.json", QWEN3).put("hf_quant_config.json", quantization)
    stored = {weight.stored for run in read("me/fp8").spec.stacks[0].runs for weight in run.block.weights()}
    assert stored == {"fp8", "bf16"}
    assert hub.fetch_model(HubReference(repo_id="me/fp8")).hf_quant_config == quantization


@pytest.mark.parametrize(
    ("file", "warning"),
    [
        ("pytorch_model.bin", "not in safetensors files"),
        ("m-Q4_K_M.gguf", "name one of them, such as me/other:Q4_K_M"),
        ("m.gguf", "name one of them, such as me/other/m.gguf"),
    ],
)
def test_weights_in_other_files_are_told(hub_server, file, warning):
    hub_server.add("me/other").put("config.json", QWEN3).put(file, b"")
    source = read("me/other")
    assert source.checkpoint is None
    assert warning in source.warnings[0]


def test_the_dtype_of_the_weights_fills_in_for_a_config_without_one(hub_server):
    config = {key: value for key, value in QWEN3.items() if key != "torch_dtype"}
    hub_server.add("me/half").put("config.json", config).put("model.safetensors", single(TENSORS))
    assert read("me/half").spec.dtype == "fp16"


def test_a_revision_is_read_as_asked(qwen, hub_server):
    other = QWEN3 | {"num_hidden_layers": 14}
    qwen.revisions = {"v1": {"config.json": json.dumps(other).encode()}, "refs/pr/2": qwen.files}
    assert read("me/My-Model", revision="v1").spec.stacks[0].n_layers == 14
    assert read("me/My-Model@v1").spec.stacks[0].n_layers == 14
    assert read("me/My-Model").spec.stacks[0].n_layers == 28
    assert read("https://huggingface.co/me/My-Model/tree/refs%2Fpr%2F2").spec.stacks[0].n_layers == 28
    assert any("/resolve/refs%2Fpr%2F2/" in path for path in hub_server.paths())
    with pytest.raises(InputError, match="v2"):
        read("me/My-Model@v1", revision="v2")


def test_a_preset_at_a_revision_is_asked_of_the_hub(hub_server):
    hub_server.add("Qwen/Qwen3-0.6B").put("config.json", QWEN3)
    assert read("Qwen/Qwen3-0.6B").kind is SourceKind.PRESET
    assert hub_server.requests == []
    assert read("Qwen/Qwen3-0.6B", revision="main").kind is SourceKind.HUB


def test_a_renamed_repository_is_followed(hub_server):
    hub_server.add("new/name").put("config.json", QWEN3)
    hub_server.add("old/name", fault="renamed", fault_on=("config.json", INFO), location="new/name")
    source = read("old/name")
    assert (source.id, source.spec.model_type) == ("new/name", "qwen3")


# ---- the cache ------------------------------------------------------------------------------------------------------


def test_what_was_read_is_not_read_again_even_by_another_process(qwen, hub_server, monkeypatch):
    first = read("me/My-Model")
    n_requests = len(hub_server.requests)
    assert read("ME/my-model") == first
    monkeypatch.setattr(hub, "CACHE", HubCache(folder=hub.CACHE.folder))  # as a new process finds the disk
    assert read("me/My-Model") == first
    assert len(hub_server.requests) == n_requests


def test_a_day_later_it_is_read_again_and_an_old_reading_serves_offline(qwen, hub_server, monkeypatch):
    read("me/My-Model")
    n_requests = len(hub_server.requests)
    monkeypatch.setattr("presets.hub_cache.FRESH_S", 0.0)
    read("me/My-Model")
    assert len(hub_server.requests) == 2 * n_requests
    qwen.fault = "status:503"
    source = read("me/My-Model")
    assert source.spec.model_type == "qwen3"
    assert "This is as read on 20" in " ".join(source.warnings)


def test_rubbish_on_disk_is_as_good_as_nothing(qwen, monkeypatch):
    read("me/My-Model")
    (file,) = hub.CACHE.folder.iterdir()
    for rubbish in (b"", b"{", b"[]", b'{"text": 1}', b"\x00" * 100, file.read_bytes()[:-20]):
        file.write_bytes(rubbish)
        monkeypatch.setattr(hub, "CACHE", HubCache(folder=hub.CACHE.folder))
        assert read("me/My-Model").spec.model_type == "qwen3"


def test_a_cache_that_cannot_be_written_costs_nothing(qwen, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(hub, "CACHE", HubCache(folder=tmp_path / "file" / "cache"))
    assert read("me/My-Model").spec.model_type == "qwen3"


def test_the_cache_is_bounded_in_memory_and_on_disk(tmp_path):
    cache = HubCache(folder=tmp_path, max_entries=5, max_bytes=10_000)
    for number in range(20):
        cache.put((str(number),), "", "x" * 100)
    assert cache.get(("19",), "") is not None
    assert cache.get(("3",), "") is None
    assert len(list(tmp_path.iterdir())) == 5
    cache.put(("large",), "", "x" * 20_000)
    assert cache.get(("large",), "") is None
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 10_000


def test_facts_that_could_not_be_read_are_asked_for_again(qwen, hub_server):
    qwen.fault, qwen.fault_on = "status:503", ("model.safetensors",)
    source = read("me/My-Model")
    assert source.checkpoint is None
    assert "What the checkpoint stores is not known" in source.warnings[0]
    qwen.fault = ""
    assert read("me/My-Model").checkpoint.stored_bytes == STORED


def test_failures_are_not_cached(qwen):
    qwen.fault = "status:503"
    with pytest.raises(SourceError):
        read("me/My-Model")
    qwen.fault = ""
    assert read("me/My-Model").spec.model_type == "qwen3"


def test_many_readers_at_once_get_the_same_model(hub_server):
    for number in range(5):
        repo = hub_server.add(f"me/model-{number}")
        repo.put("config.json", QWEN3 | {"num_hidden_layers": number + 1}).put(
            "model.safetensors", single(TENSORS)
        )
    wanted = [number % 5 for number in range(60)]
    with ThreadPoolExecutor(8) as pool:
        sources = list(pool.map(lambda number: read(f"me/model-{number}"), wanted))
    assert [source.spec.stacks[0].n_layers for source in sources] == [number + 1 for number in wanted]
    assert {source.checkpoint.stored_bytes for source in sources} == {STORED}


@pytest.mark.reference
def test_every_collected_config_reads_the_same_from_the_hub_as_from_its_text(hub_server, reference):
    folder, refused, read_alike = reference / "configs", 0, 0
    for path in sorted(folder.glob("*.json")):
        model_id = f"org/{path.stem}"[:96].replace("--", "-")
        repo = hub_server.add(model_id)
        repo.put("config.json", path.read_bytes())
        quantization = reference / "hf_quant_configs" / path.name
        if quantization.exists():
            repo.put("hf_quant_config.json", quantization.read_bytes())
        try:
            expected = read_config_text(path.read_bytes())
        except RidgebeamError as error:
            refused += 1
            with pytest.raises(type(error)):
                read(model_id)
            continue
        source = read(model_id)
        assert source.spec.model_type == expected.spec.model_type
        if not quantization.exists():
            assert source.spec.stacks == expected.spec.stacks
        read_alike += 1
    assert read_alike + refused >= 200
    assert read_alike >= 75
