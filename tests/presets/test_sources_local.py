import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors_files import sharded, single
from test_config_text import POEM, QWEN3

from calc.errors import InputError, RidgebeamError
from calc.parameters import count_parameters
from presets.sources import SourceKind, read

TENSORS = {
    "model.embed_tokens.weight": (np.float16, (100, 16)),
    "model.layers.0.mlp.up_proj.weight": (np.int32, (64, 16)),
    "model.norm.weight": (np.float32, (16,)),
}
STORED = 100 * 16 * 2 + 64 * 16 * 4 + 16 * 4


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN3))
    return folder


def test_a_preset_needs_no_network_and_no_exact_spelling():
    for pasted in ("qwen/qwen3-0.6b", "Qwen3-0.6B", "https://huggingface.co/Qwen/Qwen3-0.6B/tree/main"):
        source = read(pasted)
        assert (source.kind, source.id) == (SourceKind.PRESET, "Qwen/Qwen3-0.6B")
        assert count_parameters(source.spec).total == 596_049_920


def test_a_config_file_and_its_folder_are_the_same_model(folder):
    by_folder, by_file = read(str(folder)), read(str(folder / "config.json"))
    assert by_folder.spec == by_file.spec
    assert by_folder.kind is SourceKind.CONFIG_FILE
    assert by_folder.id == "my-model"


@pytest.mark.parametrize("n_shards", [0, 1, 3])
def test_stored_bytes_come_from_the_headers_of_the_files(folder, n_shards):
    files = sharded(TENSORS, n_shards) if n_shards else {"model.safetensors": single(TENSORS)}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    facts = read(str(folder)).checkpoint
    assert facts.stored_bytes == STORED
    assert facts.elements_by_format == (("F16", 1600), ("F32", 16), ("I32", 1024))
    assert facts.bytes_by_format == (("F16", 3200), ("F32", 64), ("I32", 4096))
    assert (facts.n_tensors, facts.n_files) == (3, max(1, n_shards))


def test_a_checkpoint_that_is_no_match_for_its_config_is_told(folder):
    (folder / "model.safetensors").write_bytes(single(TENSORS))
    (warning,) = read(str(folder)).warnings
    assert "The checkpoint stores 7.36 kB" in warning
    assert "1.19 GB" in warning


def test_a_folder_with_modelopt_formats_keeps_them(folder):
    quantization = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (folder / "hf_quant_config.json").write_text(json.dumps(quantization))
    plain = json.dumps(
        QWEN3 | {"quantization_config": {"quant_method": "modelopt"} | quantization["quantization"]}
    )
    other = folder.parent / "same"
    other.mkdir()
    (other / "config.json").write_text(plain)
    assert read(str(folder)).spec.stacks == read(str(other)).spec.stacks
    stored = {
        weight.stored for run in read(str(folder)).spec.stacks[0].runs for weight in run.block.weights()
    }
    assert stored == {"fp8", "bf16"}


@pytest.mark.parametrize("damage", ["length", "json", "offsets", "short", "missing"])
def test_damaged_weights_cost_the_facts_and_nothing_else(folder, damage):
    files = sharded(TENSORS, 2)
    first = "model-00001-of-00002.safetensors"
    data = files[first]
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    name = next(key for key in header if key != "__metadata__")
    header[name]["data_offsets"] = [9, 3]
    bad = json.dumps(header).encode()
    files[first] = {
        "length": (1 << 60).to_bytes(8, "little") + data[8:],
        "json": data[:8] + b"x" * length,
        "offsets": len(bad).to_bytes(8, "little") + bad,
        "short": data[: length // 2],
        "missing": b"",
    }[damage]
    for file, content in files.items():
        if content:
            (folder / file).write_bytes(content)
    source = read(str(folder))
    assert source.checkpoint is None
    assert "cannot be read" in source.warnings[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("poem.json", POEM, "it must be JSON"),
        ("list.json", "[]", "not a list"),
        ("heads.json", json.dumps(QWEN3 | {"num_attention_heads": -1}), "num_attention_heads"),
    ],
)
def test_a_file_that_is_no_config_is_bad_input(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read(str(tmp_path / name))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("path", ["/no/such/config.json", "./nothing", "/dev/zero", "/dev"])
def test_a_path_without_a_config_says_so(path):
    with pytest.raises(InputError, match=r"no such file|regular file|no config\.json"):
        read(path)


@pytest.mark.parametrize(
    "path",
    ["/" + "x" * 300, "~no-such-user-here/x", "/x\0y", "./" + "y" * 300 + ".json", "/etc/passwd/config.json"],
)
def test_a_path_that_cannot_be_looked_up_says_so(path):
    with pytest.raises(InputError, match=r"cannot be looked up|no such file"):
        read(path)


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=60)
    | st.builds(
        "{}{}".format, st.sampled_from(["/", "~", "./", "{", "a/b", "hf.co/", "C:\\"]), st.text(max_size=60)
    )
)
def test_whatever_is_typed_is_a_model_or_an_error_with_a_message(typed):
    try:
        read(typed)
    except RidgebeamError as error:
        message = str(error)
    else:
        message = "a model"
    assert message


@pytest.mark.parametrize("path", ["", "config.json", "/etc/passwd", "~/x", "../config.json", "m.gguf"])
def test_a_server_for_others_reads_none_of_its_files(folder, monkeypatch, path):
    path = path if path[:1] in ("/", "~", ".") else str(folder / path)
    with pytest.raises(InputError, match="reads no files of its own"):
        read(path, allow_paths=False)
    monkeypatch.setenv("RIDGEBEAM_PATHS", "no")
    with pytest.raises(InputError, match="reads no files of its own"):
        read(path)
