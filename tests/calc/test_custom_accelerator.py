"""Typed accelerators, and the JSON that carries any accelerator."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.accelerator import Confirmation
from calc.custom_accelerator import (
    accelerator_as_json,
    accelerator_from_json,
    accelerator_from_text,
    typed_accelerator,
)
from calc.errors import InputError
from presets import accelerators

TYPED = {
    "name": "My card",
    "memory_bytes": 48e9,
    "bandwidth_bytes_per_s": 1000e9,
    "flop_per_s_16bit": 100e12,
}


def test_a_typed_accelerator_answers_like_the_catalogues_example_gpu():
    typed, example = typed_accelerator(**TYPED), accelerators.load("example-gpu")
    assert typed.cuda_memory == example.cuda_memory
    assert typed.bandwidth_bytes_per_s == example.bandwidth_bytes_per_s
    assert typed.flop_per_s_16bit == example.flop_per_s_16bit
    assert typed.confirmation is Confirmation.TYPED
    assert typed.id == "typed:memory=48GB,bandwidth=1000GB/s,16bit=100TFLOPS,node=8,name=My card"


def test_optional_numbers_fill_their_formats():
    typed = typed_accelerator(
        **TYPED, flop_per_s_8bit=2e14, flop_per_s_4bit=4e14, link_bytes_per_s=50e9, node_size=4
    )
    assert [typed.rate(f).flop_per_s for f in ("bf16", "fp16", "fp8", "int8", "fp4")] == [
        100e12,
        100e12,
        2e14,
        2e14,
        4e14,
    ]
    assert (typed.link_bytes_per_s, typed.node_size) == (50e9, 4)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "  "}, "name"),
        ({"name": "x" * 81}, "name"),
        ({"memory_bytes": 48}, "memory_bytes"),  # gigabytes typed as bytes
        ({"memory_bytes": math.nan}, "memory_bytes"),
        ({"memory_bytes": "48"}, "memory_bytes"),
        ({"bandwidth_bytes_per_s": -1}, "bandwidth_bytes_per_s"),
        ({"bandwidth_bytes_per_s": math.inf}, "bandwidth_bytes_per_s"),
        ({"flop_per_s_16bit": 312}, "bf16 rate"),  # TFLOP/s typed as FLOP/s
        ({"flop_per_s_8bit": True}, "fp8 rate"),
        ({"link_bytes_per_s": 0}, "link_bytes_per_s"),
        ({"node_size": 0}, "node_size"),
        ({"node_size": 2.5}, "node_size"),
        ({"power_w": -5}, "power_w"),
    ],
)
def test_a_bad_number_is_refused_by_its_field(change, field):
    with pytest.raises(InputError) as caught:
        typed_accelerator(**(TYPED | change))
    assert caught.value.field == field


def test_every_catalogue_entry_survives_its_json():
    for accelerator in accelerators.load_all():
        text = json.dumps(accelerator_as_json(accelerator))
        assert accelerator_from_json(json.loads(text)) == accelerator


@settings(max_examples=50, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "memory_bytes": st.floats(1e6, 1e15),
            "bandwidth_bytes_per_s": st.floats(1e6, 1e20),
            "flop_per_s_16bit": st.floats(1e6, 1e20),
            "flop_per_s_8bit": st.none() | st.floats(1e6, 1e20),
            "node_size": st.integers(1, 1000),
            "name": st.text(min_size=1, max_size=80).filter(lambda t: " ".join(t.split())),
        }
    )
)
def test_any_typed_accelerator_survives_its_json(numbers):
    typed = typed_accelerator(**numbers)
    assert accelerator_from_json(json.loads(json.dumps(accelerator_as_json(typed)))) == typed
    assert accelerator_from_text(typed.id) == typed


def test_a_line_of_text_is_an_accelerator():
    typed = accelerator_from_text(
        " TYPED:Memory = 24 GiB, bandwidth=1.008TB/s,16bit=165.2TFLOPS,8bit=330 tflops,link=64e9,power=450W,node=2,name=My, own  card"
    )
    assert typed.cuda_memory.best == 24 * 2**30
    assert typed.bandwidth_bytes_per_s == 1.008e12
    assert (typed.rate("bf16").flop_per_s, typed.rate("int8").flop_per_s) == (165.2e12, 330e12)
    assert (typed.link_bytes_per_s, typed.power_w, typed.node_size, typed.name) == (
        64e9,
        450,
        2,
        "My, own card",
    )
    assert accelerators.load(typed.id) == typed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("typed:", "needs memory, bandwidth, 16bit"),
        ("typed:memory=48GB,bandwidth=1TB/s", "needs 16bit"),
        ("typed:memory=48,bandwidth=1TB/s,16bit=100TFLOPS", "memory_bytes: got 48"),
        ("typed:memory=48GHz,bandwidth=1TB/s,16bit=100TFLOPS", "number with a unit"),
        ("typed:memory=1.2.3GB,bandwidth=1TB/s,16bit=100TFLOPS", "number with a unit"),
        ("typed:memory=-48GB,bandwidth=1TB/s,16bit=100TFLOPS", "number with a unit"),
        ("typed:memory=48GB,memory=48GB", "given before"),
        ("typed:cores=3", "words: memory, bandwidth"),
        ("typed:48GB", "words: memory, bandwidth"),
        ("typed:memory=48GB,bandwidth=1TB/s,16bit=100TFLOPS,node=1.5", "node_size"),
        ("typed:memory=9e999GB,bandwidth=1TB/s,16bit=100TFLOPS", "memory_bytes"),
        ("typed:memory=48GB,bandwidth=1TB/s,16bit=100TFLOPS,name=" + "x" * 200, "name"),
        ("something", "reads like typed:"),
    ],
)
def test_a_bad_line_is_refused_by_its_word(text, words):
    with pytest.raises(InputError, match=words):
        accelerator_from_text(text)


GOOD = accelerator_as_json(typed_accelerator(**TYPED))


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ([], "accelerator"),
        ("x", "accelerator"),
        (GOOD | {"speed": 3}, "accelerator.speed"),
        ({k: v for k, v in GOOD.items() if k != "name"}, "accelerator.name"),
        (GOOD | {"name": 3}, "accelerator.name"),
        (GOOD | {"notes": "x" * 5000}, "accelerator.notes"),
        (GOOD | {"bandwidth_bytes_per_s": "fast"}, "accelerator.bandwidth_bytes_per_s"),
        (GOOD | {"bandwidth_bytes_per_s": -3}, "bandwidth_bytes_per_s"),
        (GOOD | {"cuda_memory_bytes": [1]}, "accelerator.cuda_memory_bytes"),
        (GOOD | {"cuda_memory_bytes": [10**12, 10**12]}, "cuda_memory_bytes"),
        (GOOD | {"rates": {"bf16": {}}}, "accelerator.rates.bf16.flop_per_s"),
        (GOOD | {"rates": {"bf16": {"flop_per_s": 1e12, "x": 1}}}, "accelerator.rates.bf16.x"),
        (GOOD | {"rates": {"bf99": {"flop_per_s": 1e12}}}, "rates"),
        (GOOD | {"rates": {"bf16": {"flop_per_s": 1e12, "provenance": "hearsay"}}}, "accelerator.rates.bf16.provenance"),
        (GOOD | {"confirmation": "sworn"}, "accelerator.confirmation"),
        (GOOD | {"node_size": True}, "accelerator.node_size"),
    ],
)  # fmt: skip
def test_bad_json_is_refused_by_its_field(record, field):
    with pytest.raises(InputError) as caught:
        accelerator_from_json(record)
    assert caught.value.field == field
