"""KV arithmetic of the engines against public start-up logs, and properties that hold for every model."""

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.engine import Engine
from calc.errors import InputError
from calc.layout import Layout
from calc.memory.engines import EngineSettings, ledger
from calc.units import GIB
from presets import accelerators, models
from presets.engine_log_check import check_kv
from presets.engine_logs import read_logs, readings

FIXED_LAYERS = [engine for engine in Engine if engine is not Engine.OLLAMA]  # Ollama moves layers to the host
WITHIN = 0.005  # half a per cent, or the rounding of what the log printed where that is coarser
H100 = accelerators.load("h100-sxm5-80gb")
LLAMA_8B = models.load("meta-llama/Meta-Llama-3.1-8B")


@pytest.fixture(scope="module")
def checked(cases, reference):
    logs = [log for log in read_logs(cases) if {"kv", "needed"} & set(log.roles)]
    return {log.case_id: check_kv(log, reference / "configs") for log in logs}


@pytest.mark.reference
def test_every_usable_log_gives_its_own_tokens(checked):
    used = {case_id: row for case_id, row in checked.items() if row.comparisons}
    misses = {
        case_id: (c.quantity, c.predicted, c.logged)
        for case_id, row in used.items()
        for c in row.comparisons
        if abs(c.error) > max(WITHIN, c.rounding)
    }
    # L005: TP4 with a KV connector; one rank prints its pool, the poorest binds, and the log shows one of them only.
    assert set(misses) <= {"L005"}
    assert statistics.median(abs(row.worst.error) for row in used.values()) < 0.001


@pytest.mark.reference
def test_a_row_that_is_not_used_says_why(checked):
    for case_id, row in checked.items():
        assert row.comparisons or len(row.unusable) > 10, case_id


def test_every_reading_says_why():
    for case_id, reading in readings().items():
        said = (reading.because, reading.unusable, reading.only_cache, reading.hidden, reading.miss)
        assert any(said), case_id


def test_llama_8b_on_a_24_gib_card_as_vllm_v0_logged_it():
    # vllm-project/vllm issue 10517: 2.89 GiB, 23,648 tokens, refused at 29,000.
    chosen = EngineSettings(version="0.6.4", max_model_len=29_000, available_kv_bytes=2.89 * GIB)
    result = ledger(LLAMA_8B, accelerators.load("rtx-3090"), Layout(), chosen)
    assert result.kv.printed_tokens == pytest.approx(23_648, abs=32)
    assert not result.verdict.fits


def test_needed_bytes_are_the_engines_own():
    # 96 KiB, 144 KiB ... per token times the length: Qwen3-14B has 40 layers of 8 heads of 128.
    chosen = EngineSettings(max_model_len=40_960, available_kv_bytes=11.57 * GIB)
    kv = ledger(models.load("Qwen/Qwen3-14B"), H100, Layout(), chosen).kv
    assert kv.needed_bytes == 40 * 8 * 128 * 2 * 2 * 40_960
    assert kv.printed_tokens == 75_824  # logged with 0.28


@pytest.mark.parametrize("tp", [16, 32])
def test_kv_heads_are_replicated_past_their_number(tp):
    one = EngineSettings(max_model_len=4096, available_kv_bytes=10 * GIB)
    at_eight = ledger(LLAMA_8B, H100, Layout(tp=8), one).kv
    assert ledger(LLAMA_8B, H100, Layout(tp=tp), one).kv.tokens == at_eight.tokens


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(["Qwen/Qwen3-0.6B", "meta-llama/Llama-2-13b-hf", "microsoft/phi-2"]),
    gib=st.floats(0.5, 200),
    tokens=st.integers(1, 100_000),
    engine=st.sampled_from(FIXED_LAYERS),
)
def test_a_longer_context_never_needs_less_memory(model, gib, tokens, engine):
    spec = models.load(model)

    def needed(length):
        chosen = EngineSettings(engine=engine, max_model_len=length, available_kv_bytes=gib * GIB)
        return ledger(spec, H100, Layout(), chosen).kv.needed_bytes

    assert needed(tokens) <= needed(tokens + 1) <= needed(2 * tokens + 1)


@settings(max_examples=40, deadline=None)
@given(gib=st.floats(0.1, 100), more=st.floats(0.1, 50), engine=st.sampled_from(FIXED_LAYERS))
def test_more_memory_never_holds_fewer_tokens(gib, more, engine):
    def longest(size):
        chosen = EngineSettings(engine=engine, max_model_len=50_000, available_kv_bytes=size * GIB)
        return ledger(LLAMA_8B, H100, Layout(), chosen).kv.longest_length

    assert longest(gib) <= longest(gib + more)


@settings(max_examples=30, deadline=None)
@given(length=st.integers(300, 131_072), gib=st.floats(0.05, 20))
def test_the_longest_length_fits_and_one_more_block_does_not(length, gib):
    chosen = EngineSettings(max_model_len=length, available_kv_bytes=gib * GIB)
    kv = ledger(LLAMA_8B, H100, Layout(), chosen).kv
    if kv.longest_length:
        again = EngineSettings(max_model_len=kv.longest_length, available_kv_bytes=gib * GIB)
        assert ledger(LLAMA_8B, H100, Layout(), again).verdict.fits
    if kv.longest_length < length:
        more = EngineSettings(max_model_len=kv.longest_length + 1, available_kv_bytes=gib * GIB)
        assert not ledger(LLAMA_8B, H100, Layout(), more).verdict.fits


def test_fp8_holds_twice_the_tokens_and_nvfp4_more():
    def tokens(dtype):
        chosen = EngineSettings(max_model_len=4096, available_kv_bytes=8 * GIB, kv_dtype=dtype)
        return ledger(LLAMA_8B, H100, Layout(), chosen).kv.num_blocks

    assert tokens("fp8") == 2 * tokens("bf16")
    assert tokens("nvfp4") / tokens("fp8") == pytest.approx(
        16 / 9, rel=1e-3
    )  # 4.5 bits an element, as logged
    assert tokens("fp8_per_token_head") < tokens("fp8")


def test_an_unknown_cache_format_is_refused_by_name():
    with pytest.raises(InputError, match="kv_dtype"):
        ledger(LLAMA_8B, H100, Layout(), EngineSettings(kv_dtype="int3"))
