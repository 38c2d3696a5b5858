"""What must hold for the ledger of any model, layout and start: refusals with a way out, sums, versions, settings."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.engine import Engine
from calc.errors import InputError
from calc.format_support import engine_support
from calc.layout import Layout
from calc.memory.engines import EngineSettings, LineKind, ledger
from calc.memory.engines.kv_formats import engine_kv_format
from calc.memory.engines.versions import VLLM_VERSIONS, release, rules_of
from calc.memory.report import fit_json
from calc.quantization import WHAT_IF, weight_bytes
from calc.units import GIB
from presets import accelerators, models

H100 = accelerators.load("h100-sxm5-80gb")
LLAMA_8B = models.load("meta-llama/Meta-Llama-3.1-8B")
LLAMA_70B = models.load("meta-llama/Llama-3.3-70B-Instruct")
FILLING = [Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM]


# ---- refusals -------------------------------------------------------------------------------------------------


def test_a_refusal_says_what_would_fit():
    chosen = EngineSettings(version="0.19.0")
    failed = ledger(LLAMA_70B, H100, Layout(tp=2), replace(chosen, max_model_len=131_072))
    assert not failed.verdict.fits
    assert "GiB KV cache is needed" in failed.verdict.reason
    assert len(failed.verdict.nearest) == 3
    for change in failed.verdict.nearest:
        named = dict(change.settings)
        fields = {
            name: type_of(name)(value)
            for name, value in named.items()
            if name not in ("tp", "device_memory_gib")
        }
        changed = replace(chosen, max_model_len=131_072) if "max_model_len" not in fields else chosen
        if "device_memory_gib" in named:
            fields["device_memory_bytes"] = float(named["device_memory_gib"]) * GIB
        again = ledger(LLAMA_70B, H100, Layout(tp=int(named.get("tp", 2))), replace(changed, **fields))
        assert again.verdict.fits, change.text


def type_of(name):
    return {"memory_utilization": float, "kv_dtype": str, "quantization": str}.get(name, int)


@pytest.mark.parametrize("engine", list(Engine))
def test_a_model_far_too_large_is_refused_with_a_way_out(engine):
    chosen = EngineSettings(engine=engine, max_model_len=4096, gpu_layers=80)
    failed = ledger(LLAMA_70B, accelerators.load("rtx-4060"), Layout(), chosen)
    assert not failed.verdict.fits
    assert failed.verdict.short_by > 100e9
    assert failed.verdict.reason
    assert failed.verdict.nearest


def test_a_share_that_leaves_no_room_for_the_context_is_refused():
    greedy = EngineSettings(version="0.19.0", memory_utilization=0.9995, max_model_len=8192)
    failed = ledger(LLAMA_8B, H100, Layout(), greedy)
    assert not failed.verdict.fits
    assert "startup" in failed.verdict.reason
    assert dict(failed.verdict.nearest[0].settings) == {"memory_utilization": "0.95"}
    assert ledger(LLAMA_8B, H100, Layout(), replace(greedy, memory_utilization=0.99)).verdict.fits


@pytest.mark.parametrize(
    ("share", "fits", "undecided"), [(0.49, False, True), (0.7, True, False), (0.99, False, False)]
)
def test_a_board_that_shares_memory_may_start_where_its_range_says_so(share, fits, undecided):
    # At 0.49 a public start of this 57 GiB model on such a board logged 4.85 GiB of cache, less than nothing by its own terms.
    board, model = accelerators.load("dgx-spark-gb10"), models.load("Qwen/Qwen3-30B-A3B")
    chosen = EngineSettings(memory_utilization=share, max_model_len=16_384)
    found = ledger(model, board, Layout(), chosen)
    assert (found.verdict.fits, found.undecided) == (fits, undecided)
    if undecided:
        assert "may be left" in found.verdict.reason
        assert found.tightest.kv.low < 4.85 * GIB < found.tightest.kv.high
    assert not ledger(model, H100, Layout(), replace(chosen, memory_utilization=0.7)).undecided


def test_a_public_start_on_a_board_that_shares_memory():
    # Qwen3-0.6B on a DGX Spark, vLLM 0.27.1, share 0.6 of 121.69 GiB: 3.35 GiB consumed, a pool of 69.4 GiB, 649,728 tokens, and
    # 51 and 35 graphs: 256 sequences, the small cards' default, because the driver reports no memory there.
    chosen = EngineSettings(version="0.27.1", memory_utilization=0.6, device_memory_bytes=121.69 * GIB)
    found = ledger(models.load("Qwen/Qwen3-0.6B"), accelerators.load("dgx-spark-gb10"), Layout(), chosen)
    assert found.kv.available_bytes / GIB == pytest.approx(69.4, rel=0.015)
    assert found.kv.printed_tokens == pytest.approx(649_728, rel=0.015)
    rank = found.tightest
    assert (rank.bytes_of(LineKind.WEIGHTS) + rank.bytes_of(LineKind.NON_TORCH)) / GIB == pytest.approx(
        3.35, abs=0.2
    )
    note = next(line.note for line in rank.lines if line.kind is LineKind.ACTIVATION)
    assert "256 sequences" in note


def test_dense_models_may_run_in_the_second_model_runner():
    # The same start on 0.27.1: 0.26 GiB beside weights, memory outside torch and pool, and nothing for graphs; a 0.92 GiB model on a
    # 24 GB card logged 0.31 GiB at 8,192 tokens. Mixtures and recurrent models stay in the first runner.
    def low(name, version):
        chosen = EngineSettings(version=version, max_model_len=8192, max_seqs=256, max_batched_tokens=2048)
        rank = ledger(models.load(name), H100, Layout(), chosen).tightest
        return {line.kind: float(line.bytes.low) / GIB for line in rank.lines}

    dense, before = low("Qwen/Qwen3-0.6B", "0.27.1"), low("Qwen/Qwen3-0.6B", "0.26.0")
    assert dense[LineKind.ACTIVATION] == pytest.approx(0.26 - 0.05, abs=0.01)
    assert (dense[LineKind.GRAPHS], before[LineKind.GRAPHS] > 0.3) == (0.0, True)
    mixture = low("Qwen/Qwen3-30B-A3B", "0.27.1")
    assert mixture[LineKind.ACTIVATION] == low("Qwen/Qwen3-30B-A3B", "0.26.0")[LineKind.ACTIVATION]


def test_report_has_the_contracts_fields():
    record = fit_json(ledger(LLAMA_8B, H100, Layout(), EngineSettings()), Layout())
    assert {"fits", "verdict", "per_gpu", "kv", "ranks"} <= set(record)
    per_gpu = {
        "total_bytes",
        "weights_bytes",
        "activation_bytes",
        "non_torch_bytes",
        "graph_bytes",
        "kv_bytes",
    }
    assert per_gpu <= set(record["per_gpu"])
    assert all(isinstance(record["per_gpu"][name], int) for name in per_gpu)
    assert {
        "logical_bytes_per_token",
        "block_size",
        "num_blocks",
        "tokens",
        "printed_tokens",
        "max_concurrency",
        "needed_bytes_for_max_len",
    } <= set(record["kv"])


@pytest.mark.parametrize("tp", [1, 2])
def test_adapters_take_what_their_parameters_store(tp):
    """PEFT counts 41,943,040 parameters of a rank-16 adapter on every projection of Llama 3.1 8B."""

    def adapters(degree, n):
        chosen = EngineSettings(adapters=n, adapter_rank=16)
        rank = ledger(LLAMA_8B, H100, Layout(tp=degree), chosen).tightest
        return rank.bytes_of(LineKind.ADAPTERS), float(rank.kv.best)

    stored = 4 * 41_943_040 * 2
    if tp == 1:
        assert adapters(1, 4)[0] == pytest.approx(stored, rel=0.01)  # torch counts whole segments
    else:
        # A of the inward projections and B of the outward ones are whole on both ranks
        whole = 32 * 4 * 16 * 2 * (5 * 4096 + 2 * 4096)
        assert adapters(2, 4)[0] == pytest.approx((stored - whole) / 2 + whole, rel=0.01)
    none, with_adapters = adapters(tp, 0), adapters(tp, 4)
    assert none[0] == 0
    assert none[1] - with_adapters[1] == pytest.approx(with_adapters[0])


def test_adapters_are_shared_out_over_pipeline_stages():
    chosen = EngineSettings(adapters=4, adapter_rank=16)
    stages = [rank.bytes_of(LineKind.ADAPTERS) for rank in ledger(LLAMA_8B, H100, Layout(pp=2), chosen).ranks]
    assert stages == [4 * 41_943_040.0] * 2


def test_a_release_from_the_future_is_named():
    later = ledger(LLAMA_8B, H100, Layout(), EngineSettings(engine=Engine.VLLM, version="99.1"))
    assert "later than 0.33" in later.assumptions[0]
    newest = ledger(LLAMA_8B, H100, Layout(), EngineSettings(engine=Engine.VLLM, version="0.33.0"))
    assert later.kv.tokens == newest.kv.tokens
    assert not any("later than" in text for text in newest.assumptions)


def test_an_engine_is_refused_where_it_does_not_run():
    with pytest.raises(InputError, match=r"does not run on M1.*llama\.cpp"):
        ledger(LLAMA_8B, accelerators.load("apple-m1"), Layout(), EngineSettings(engine=Engine.VLLM))
    own = ledger(LLAMA_8B, accelerators.load("apple-m1"), Layout(), EngineSettings(engine=Engine.LLAMA_CPP))
    assert own.engine is Engine.LLAMA_CPP


# ---- for any start --------------------------------------------------------------------------------------------

STARTS = st.fixed_dictionaries(
    {
        "engine": st.sampled_from(FILLING),
        "memory_utilization": st.floats(0.3, 0.98),
        "max_model_len": st.integers(256, 131_072),
        "max_batched_tokens": st.integers(256, 32_768),
        "max_seqs": st.integers(1, 1024),
    }
)


@settings(max_examples=40, deadline=None)
@given(start=STARTS, gpu=st.sampled_from(["h100-sxm5-80gb", "rtx-4090", "l4", "mi300x"]))
def test_a_ledger_adds_up(start, gpu):
    chosen = EngineSettings(**start)
    if not engine_support(chosen.engine, accelerators.load(gpu)):
        with pytest.raises(InputError, match="does not run on"):
            ledger(LLAMA_8B, accelerators.load(gpu), Layout(), chosen)
        return
    rank = ledger(LLAMA_8B, accelerators.load(gpu), Layout(), chosen).tightest
    counted = sum(float(line.bytes.best) for line in rank.lines if line.counted)
    if chosen.engine is Engine.TENSORRT_LLM:
        free = float(rank.total.best) - counted
        assert rank.kv.best == pytest.approx(chosen.memory_utilization * free, rel=1e-9)
    else:
        assert rank.kv.best == pytest.approx(float(rank.budget.best) - counted, rel=1e-9)
    for line in rank.lines:
        assert line.bytes.low <= line.bytes.best <= line.bytes.high


@pytest.mark.parametrize("engine", FILLING)
def test_every_format_has_a_ledger_that_holds_its_bytes(engine):
    for name in WHAT_IF:
        rank = ledger(
            LLAMA_8B, H100, Layout(), EngineSettings(engine=engine, quantization=name), nearest=False
        ).tightest
        # What the engine keeps differs from what is stored by padding and by bitsandbytes' unpacked scales.
        assert rank.bytes_of(LineKind.WEIGHTS) == pytest.approx(weight_bytes(LLAMA_8B, name).stored, rel=0.16)


@settings(max_examples=30, deadline=None)
@given(start=STARTS, tp=st.sampled_from([1, 2, 4]))
def test_more_tp_never_needs_more_weights_per_gpu(start, tp):
    def weights(degree):
        rank = ledger(LLAMA_8B, H100, Layout(tp=degree), EngineSettings(**start)).tightest
        return rank.bytes_of(LineKind.WEIGHTS)

    assert weights(2 * tp) <= weights(tp)


@settings(max_examples=30, deadline=None)
@given(start=STARTS, more=st.integers(1, 8192))
def test_larger_batches_never_leave_more_for_the_cache(start, more):
    chosen = EngineSettings(**start)
    pool = ledger(LLAMA_8B, H100, Layout(), chosen).kv.available_bytes
    wider = replace(
        chosen, max_batched_tokens=chosen.max_batched_tokens + more, max_seqs=chosen.max_seqs + more
    )
    # SGLang's chunk raises the reserve; 8-bit rounding of its default fraction does not matter with a stated one.
    assert ledger(LLAMA_8B, H100, Layout(), wider).kv.available_bytes <= pool + 1


@settings(max_examples=30, deadline=None)
@given(
    start=STARTS,
    version=st.sampled_from(["0.6.4", "0.8.5", "0.11.0", "0.16.0", "0.19.0", "0.24.0", "0.28.0"]),
)
def test_every_version_has_a_ledger(start, version):
    chosen = EngineSettings(**start | {"engine": Engine.VLLM}, version=version)
    result = ledger(LLAMA_8B, H100, Layout(), chosen)
    holds_one = result.kv.available_bytes > 0 and result.kv.needed_bytes <= result.kv.available_bytes
    assert result.verdict.fits == (holds_one and result.start_shortfall_bytes <= 0)


def test_versions_are_in_order_and_each_says_what_changed():
    firsts = [rules.first for rules in VLLM_VERSIONS]
    assert firsts == sorted(firsts)
    assert len({rules.note for rules in VLLM_VERSIONS}) == len(VLLM_VERSIONS)
    assert rules_of("0.20.9").graphs == "printed"
    assert rules_of("0.21.0").graphs == "subtracted"
    assert rules_of("0.20.2").utilization == 0.90
    assert rules_of(None).utilization == 0.92


@pytest.mark.parametrize(
    "bad",
    [
        {"memory_utilization": 0.0},
        {"memory_utilization": 1.5},
        {"max_model_len": 0},
        {"max_seqs": -1},
        {"device_memory_bytes": -1.0},
        {"decode_context_parallel": 0},
        {"window_pool_ratio": 0.0},
        {"draft_tokens": -1},
        {"image_items": -1},
        {"state_dtype": "int3"},
    ],
)
def test_bad_settings_are_refused_by_name(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        EngineSettings(**bad)


@pytest.mark.parametrize("version", ["newest please", "", "v.1"])
def test_a_version_that_is_none_is_refused(version):
    with pytest.raises(InputError, match="version"):
        ledger(LLAMA_8B, H100, Layout(), EngineSettings(version=version or "?"))


@pytest.mark.parametrize(
    ("text", "number", "legacy"),
    [
        ("0.19.0", (0, 19, 0), False),
        ("v0.10.2", (0, 10, 2), False),
        ("0.26.1rc1.dev608", (0, 26, 1), False),
        ("0.11 line (Sep 2025)", (0, 11, 0), False),
        ("V1 (Jul 2025)", (0, 9, 2), False),
        ("V0 (Mar 2025)", (0, 7, 3), True),
        ("0.8.5 (V0)", (0, 8, 5), True),
        ("V1 (before 0.17; exact release not stated)", (0, 16, 0), False),
        ("0.6.4.post1", (0, 6, 4), True),
    ],
)
def test_versions_as_logs_write_them(text, number, legacy):
    assert release(text) == number
    assert rules_of(text).legacy is legacy


def test_cache_formats_have_the_engines_sizes():
    assert engine_kv_format("fp8_e4m3").bytes_per_element == 1.0
    assert engine_kv_format("nvfp4").bytes_per_element == 0.5625
    assert engine_kv_format("q8_0").bytes_per_element == 34 / 32
