"""Uploaded tensors: what the safetensors library and torch wrote reads back; damaged files are refused in words."""

import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from calc.errors import InputError, RidgebeamError, SourceError
from presets.tensor_files import matrices, read_matrix, tensor_list


def file_of(**arrays):
    return io.BytesIO(save(arrays))


def first(file, most=1 << 20):
    (tensor,) = matrices(tensor_list(file, name="a"))
    return read_matrix(file, tensor, name="a", most_values=most)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_numpy_floats_read_back(dtype):
    values = np.random.default_rng(0).normal(size=(6, 40)).astype(dtype)
    assert np.array_equal(first(file_of(w=values)), values.astype(float))


@pytest.mark.torch
def test_small_floats_read_back_as_torch_reads_them():
    import torch
    from safetensors.torch import save as save_torch

    codes = torch.arange(256, dtype=torch.uint8).reshape(2, 128)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        tensor = codes.view(dtype)
        finite = torch.isfinite(tensor.to(torch.float64))
        tensor = torch.where(finite, tensor.to(torch.float32), 0.0).to(dtype)
        read = first(io.BytesIO(save_torch({"w": tensor})))
        assert np.array_equal(read, tensor.to(torch.float64).numpy())
    half = torch.randn(4, 64, dtype=torch.bfloat16)
    assert np.array_equal(first(io.BytesIO(save_torch({"w": half}))), half.to(torch.float64).numpy())


def test_only_the_first_rows_of_the_chosen_tensor_are_read():
    a, b = np.full((9, 8), 1.0), np.arange(80.0).reshape(10, 8)
    file = file_of(a=a, b=b, bias=np.ones(8), count=np.ones((2, 2), dtype=np.int64))
    found = {tensor.name: tensor for tensor in matrices(tensor_list(file, name="f"))}
    assert set(found) == {"a", "b"}
    assert np.array_equal(read_matrix(file, found["b"], name="f", most_values=20), b[:2])
    assert np.array_equal(read_matrix(file, found["b"], name="f", most_values=5), b[:1, :5])
    assert found["b"].shape == (10, 8)


def built(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return io.BytesIO((len(text) if length is None else length).to_bytes(8, "little") + text + data)


def entry(**changes):
    return {"w": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]} | changes}


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (io.BytesIO(b"abc"), "shorter than"),
        (built(b"{}", length=1 << 60), "header claims"),
        (built(b"{}", length=900), "ends inside its header"),
        (built(b"not json at all"), "no JSON"),
        (built([1, 2]), "no JSON object"),
        (built({"w": 3}), "no object"),
        (built(entry(shape="2x4"), b"0" * 32), "lacks dtype, shape or data_offsets"),
        (built(entry(shape=[-2, 4]), b"0" * 32), "lacks dtype, shape or data_offsets"),
        (built(entry(data_offsets=[32, 0]), b"0" * 32), "are no range"),
        (built(entry(), b"0" * 31), "outside the file"),
        (built(entry(data_offsets=[1 << 60, (1 << 60) + 32])), "outside the file"),
        (built(entry(shape=[2, 5]), b"0" * 32), "its shape needs another number"),
        (built(entry(shape=[1 << 40, 1 << 40]), b"0" * 32), "its shape needs another number"),
        (built(entry(shape=[1] * 20 + [8]), b"0" * 32), "21 axes"),
    ],
)
def test_a_bad_file_is_refused_in_words(file, says):
    with pytest.raises(SourceError, match=says) as caught:
        tensor_list(file, name="mine.safetensors")
    assert "mine.safetensors" in caught.value.message
    assert caught.value.next_step.startswith("Upload")


def test_what_cannot_be_studied_says_why():
    bad = np.ones((2, 4), dtype=np.float32)
    bad[1, 2] = np.nan
    with pytest.raises(InputError, match="NaN or infinity"):
        first(file_of(w=bad))
    file = file_of(w=np.ones((2, 4), dtype=np.int8), b=np.ones(4, dtype=np.float32))
    for tensor, says in zip(
        sorted(tensor_list(file, name="f"), key=lambda t: t.name), ("two axes", "can be studied"), strict=True
    ):
        with pytest.raises(InputError, match=says):
            read_matrix(file, tensor, name="f", most_values=100)


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=300), st.integers(0, 400))
def test_no_bytes_whatsoever_give_another_exception(noise, cut):
    whole = save({"w": np.ones((4, 8), dtype=np.float32)})
    for data in (noise, whole[:cut], whole[:20] + noise + whole[20 + len(noise) :]):
        file = io.BytesIO(data)
        try:
            for tensor in matrices(tensor_list(file, name="n")):
                read_matrix(file, tensor, name="n", most_values=64)
        except RidgebeamError:
            pass
