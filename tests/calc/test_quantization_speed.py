"""Which scheme helps which phase: kernel tables of vLLM's documentation, and properties that hold on any card."""

import pytest

from calc.answer import answer
from calc.engine import Engine
from calc.quantization_speed import (
    BATCHES,
    GGUF_SCHEMES,
    SCHEMES,
    Way,
    headline,
    how_it_runs,
    speed_study,
    worked_speedup,
)
from calc.scenario import Scenario
from presets.accelerators import all_ids, load
from presets.resolve import resolve

# Cards with units for a format compute in it; others read it and multiply in 16 bit (vLLM documentation, FP8 and NVFP4).
TABLE = [
    ("a100-sxm4-80gb", "int8", Way.COMPUTES),
    ("a100-sxm4-80gb", "fp8", Way.WEIGHT_ONLY),
    ("a100-sxm4-80gb", "NVFP4", Way.WEIGHT_ONLY),
    ("rtx-4090", "fp8", Way.COMPUTES),
    ("h100-sxm5-80gb", "int4 g128", Way.WEIGHT_ONLY),
    ("h100-sxm5-80gb", "MXFP4", Way.WEIGHT_ONLY),
    ("b200-sxm-180gb", "NVFP4", Way.COMPUTES),
    ("b200-sxm-180gb", "MXFP4", Way.COMPUTES),
    ("mi300x", "fp8", Way.COMPUTES),
    ("mi300x", "int4 g128", Way.NOT_RUN),
    ("mi210", "fp8", Way.NOT_RUN),
]


@pytest.mark.parametrize(("gpu", "name", "way"), TABLE)
def test_how_a_scheme_runs(gpu, name, way):
    scheme = next(one for one in SCHEMES if one.name == name)
    assert how_it_runs(scheme, load(gpu), Engine.VLLM).way is way


def test_every_card_has_a_word_on_every_scheme():
    for gpu in all_ids():
        for engine in Engine:
            for scheme in (*SCHEMES, *GGUF_SCHEMES):
                assert how_it_runs(scheme, load(gpu), engine).why


@pytest.fixture(scope="module")
def studies():
    found = {}
    for fidelity in ("roofline", "expected"):
        for gpu in ("a100-sxm4-80gb", "b200-sxm-180gb"):
            scenario = Scenario(gpu=gpu, fidelity=fidelity)
            found[gpu, fidelity] = speed_study(answer(resolve(scenario)))
    return found


def test_a_bound_gains_at_most_what_the_bytes_shrink(studies):
    """Roofline: memory-bound decode gains no more than 16 over the stored bits, plus the cache's own shrinking."""
    for (_, fidelity), study in studies.items():
        if fidelity != "roofline":
            continue
        for found in study.run:
            most = 16 / found.bits_per_weight * (2 if found.scheme.kv else 1)
            assert 1 - 1e-9 <= found.at(1) <= most * (1 + 1e-9)


def test_weight_only_schemes_never_speed_up_a_long_prefill(studies):
    for study in studies.values():
        for found in study.run:
            if found.support.way is Way.WEIGHT_ONLY:
                assert found.prefill <= 1.01
    assert (
        studies["a100-sxm4-80gb", "roofline"].schemes[2].prefill > 1.8
    )  # int8: twice the rate, in most of the work


def test_weight_only_gains_fade_with_the_batch(studies):
    for study in studies.values():
        four = next(found for found in study.schemes if found.scheme.weights == "int4-g128")
        assert list(four.decode) == sorted(four.decode, reverse=True)
        assert len(four.decode) == len(BATCHES)


def test_lighter_weights_leave_room_for_more_sequences(studies):
    for study in studies.values():
        by_bits = sorted((f for f in study.run if f.scheme.kv is None), key=lambda f: -f.bits_per_weight)
        room = [study.base_sequences, *(found.sequences for found in by_bits)]
        assert room == sorted(room)


def test_a_speed_up_is_the_ratio_of_two_worked_steps():
    result = answer(resolve(Scenario()))
    study = speed_study(result)
    found = next(one for one in study.run if one.scheme.weights == "int4-g128")
    for batch, gain in ((1, found.at(1)), (512, found.at(512)), (None, found.prefill)):
        lines = worked_speedup(result, study, found, batch)
        base_s, scheme_s = (line.result for line in lines if line.formula == "pass_s")
        assert base_s / scheme_s == pytest.approx(gain) == lines[-1].result
        base, stored = (line.result for line in lines if line.formula == "weight_bytes")
        assert base - stored == pytest.approx(found.freed_bytes, rel=1e-9)


def test_the_headline_names_the_trade(studies):
    assert headline(studies["a100-sxm4-80gb", "expected"]).startswith("int4 g128 weights decode 2.")
    assert "int8 helps both phases" in headline(studies["a100-sxm4-80gb", "expected"])
    assert "NVFP4" in headline(studies["b200-sxm-180gb", "expected"])


def test_llama_cpp_is_asked_for_its_own_types():
    study = speed_study(answer(resolve(Scenario(engine="llama.cpp", gpu="rtx-4090", model="Qwen/Qwen3-8B"))))
    assert [found.scheme for found in study.schemes] == list(GGUF_SCHEMES)
    assert "nothing that runs here speeds up prefill" in headline(study)


def test_a_card_that_runs_nothing_says_so():
    study = speed_study(answer(resolve(Scenario(gpu="gaudi-2", engine="tensorrt-llm", fidelity="roofline"))))
    assert headline(study) == "This engine runs none of the quantised formats on this card."
