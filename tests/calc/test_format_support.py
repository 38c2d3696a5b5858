"""The one table of formats, engines and accelerators, held against what the engines' own documents say."""

from __future__ import annotations

import pytest

from calc.engine import Engine
from calc.errors import InputError
from calc.format_support import (
    cache_support,
    engine_support,
    formats_support,
    not_served,
    weight_scheme,
    weight_support,
)
from calc.layout import Layout
from calc.memory.engines import EngineSettings, ledger
from calc.quantization import FORMATS, WHAT_IF
from presets import accelerators, models

# vLLM, docs/features/quantization/README.md: implementation -> Volta, Turing, Ampere, Ada, Hopper, AMD GPU, Intel GPU, x86.
COLUMNS = (
    "v100-sxm2-32gb",
    "t4",
    "a100-sxm4-80gb",
    "l40s",
    "h100-sxm5-80gb",
    "mi300x",
    "max-1550",
    "epyc-9654",
)
VLLM_TABLE = {
    "awq": (0, 1, 1, 1, 1, 0, 1, 1),
    "int8": (0, 1, 1, 1, 1, 0, 0, 1),
    "bnb-4bit": (1, 1, 1, 1, 1, 0, 0, 0),
    "q4_k": (1, 1, 1, 1, 1, 1, 0, 0),
}


@pytest.mark.parametrize("name", VLLM_TABLE)
def test_vllms_own_table(name):
    found = tuple(int(bool(weight_support(name, "vllm", accelerators.load(gpu)))) for gpu in COLUMNS)
    assert found == VLLM_TABLE[name]


@pytest.mark.parametrize("gpu", ["b200-sxm-180gb", "rtx-5090", "rtx-pro-6000-blackwell"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_no_engine_multiplies_int8_on_blackwell(engine, gpu):
    """vLLM, int8_w8a8.md: not from compute capability 10.0 on; SGLang's kernel covers 7.5 to 9.0. FP8 is the way there."""
    blackwell = accelerators.load(gpu)
    assert not weight_support("int8", engine, blackwell)
    assert weight_support("fp8", engine, blackwell)
    if engine != "tensorrt-llm":
        assert weight_support("int8-weight", engine, blackwell), "kept in 8 bit, multiplied in 16"


def test_fp8_of_vllm_natively_or_by_marlin():
    """fp8.md: capability 8.9 and up computes in FP8, 7.5 and up as W8A16; the AMD column means MI300 and RDNA 4."""
    assert weight_support("fp8", "vllm", accelerators.load("t4"))
    assert not weight_support("fp8", "vllm", accelerators.load("v100-sxm2-32gb"))
    assert weight_support("fp8", "vllm", accelerators.load("rx-9070-xt"))
    assert not weight_support("fp8", "vllm", accelerators.load("radeon-pro-w7900"))


@pytest.mark.parametrize("engine", Engine)
def test_no_engine_serves_fp8_on_mi210(engine):
    mi210 = accelerators.load("mi210")
    for name in (form for form in FORMATS if weight_scheme(form) == "fp8"):
        support = weight_support(name, engine, mi210)
        assert not support
        assert support.why.startswith(str(engine))
    assert not cache_support("fp8", engine, mi210)


def test_nvfp4_needs_blackwell_in_tensorrt_llm():
    assert not weight_support("nvfp4", "tensorrt-llm", accelerators.load("h200-sxm-141gb"))
    assert weight_support("nvfp4", "tensorrt-llm", accelerators.load("b200-sxm-180gb"))
    assert not weight_support("int8", "tensorrt-llm", accelerators.load("b200-sxm-180gb"))


def test_where_an_engine_does_not_run_at_all():
    apple = accelerators.load("apple-m4-max")
    assert not engine_support("vllm", apple)
    assert engine_support("llama.cpp", apple)
    assert engine_support("ollama", apple)
    assert not engine_support("tensorrt-llm", accelerators.load("mi300x"))


def test_the_first_format_that_is_not_served_says_why():
    mi210 = accelerators.load("mi210")
    assert formats_support(("bf16",), "auto", "vllm", mi210)
    assert "fp8-block" in formats_support(("bf16", "fp8-block"), "auto", "vllm", mi210).why
    assert "KV cache" in formats_support(("bf16",), "fp8", "vllm", mi210).why


def test_made_up_and_typed_parts_are_not_judged():
    assert weight_support("nvfp4", "vllm", accelerators.load("a100-textbook"))


def test_every_format_has_a_scheme_and_an_unknown_one_is_refused():
    for name in WHAT_IF:
        assert weight_scheme(name)
    with pytest.raises(InputError):
        weight_scheme("fp7")


def test_sizes_and_times_of_a_format_that_is_not_served_carry_a_warning():
    spec, a100 = models.load("Qwen/Qwen3-0.6B"), accelerators.load("a100-sxm4-80gb")
    assert not_served(spec, "auto", "auto", "vllm", a100) == ()
    (warning,) = not_served(spec, "auto", "nvfp4", "vllm", a100)
    assert "nvfp4" in warning
    assert "refuse to start" in warning
    found = ledger(spec, a100, Layout(), EngineSettings(kv_dtype="nvfp4"))
    assert found.assumptions[0] == warning
    assert warning not in ledger(spec, a100, Layout(), EngineSettings()).assumptions
