"""Ledgers against public start-up logs: the bundled table is recomputed, single figures and caches are met."""

import csv
import re
from pathlib import Path

import pytest

from calc.engine import Engine
from calc.errors import InputError
from calc.layout import Layout
from calc.memory.engines import EngineSettings, LineKind, ledger
from calc.memory.engines.llama_cpp import cache_bytes_of, cells_of, resolve_llama
from calc.memory.engines.overheads import captured_sizes
from calc.memory.engines.sglang_defaults import default_static_fraction, sglang_version
from calc.memory.engines.shapes import shape_of
from calc.memory.engines.sharding import allocated, pipeline_stages
from calc.units import GIB, MIB
from presets import accelerators, engine_memory, models
from presets.engine_log_check import ledger_of, no_pool
from presets.engine_log_models import named_spec
from presets.engine_log_table import table
from presets.engine_logs import read_logs
from presets.engine_memory_report import report, with_report

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/accuracy.md"
H100 = accelerators.load("h100-sxm5-80gb")
LLAMA_8B = models.load("meta-llama/Meta-Llama-3.1-8B")
LLAMA_70B = models.load("meta-llama/Llama-3.3-70B-Instruct")
FILLING = [Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM]


# ---- over all public logs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recomputed(cases, reference):
    return table(read_logs(cases), reference / "configs")


@pytest.mark.reference
def test_the_bundled_table_is_what_the_rules_give(recomputed):
    assert [dict(row) for row in recomputed["unused"]] == [
        {"case_id": row.case_id, "check": row.check, "reason": row.reason} for row in engine_memory.unused()
    ]
    bundled = {(row.case_id, row.check, row.quantity): row for row in engine_memory.rows()}
    assert len(bundled) == len(recomputed["rows"])
    for row in recomputed["rows"]:
        known = bundled[row["case_id"], row["check"], row["quantity"]]
        assert known.predicted == pytest.approx(row["predicted"], rel=1e-3)
        assert known.logged == pytest.approx(row["logged"], rel=1e-5)


def group(check, name):
    return next(g for g in engine_memory.group_errors() if (g.check, g.group) == (check, name))


def test_weights_within_the_bars():
    plain = group("weights", "16 bit and fp8")
    assert plain.rows >= 80
    assert plain.median < 0.005
    assert plain.largest < 0.03
    assert group("weights", "other formats").median < 0.03


def test_pools_from_the_settings_alone():
    # Bars of the project: medians 1% and 1.5%, 90th percentiles 6% and 8%.
    large, small = group("pool", "cards of 39 GiB and more"), group("pool", "smaller cards")
    assert (large.rows, small.rows) >= (40, 20)
    assert large.median < 0.01
    assert large.p90 < 0.06
    assert small.median < 0.015
    assert small.p90 < 0.08


def test_every_pool_that_is_far_off_has_its_kind_named():
    for row in engine_memory.rows():
        if row.check == "pool" and abs(row.error) > 0.06:
            assert row.miss, row.case_id


@pytest.mark.reference
def test_most_logged_pools_lie_inside_the_range(cases, reference):
    inside = []
    for log in read_logs(cases):
        if no_pool(log) is None:
            result = ledger_of(log, reference / "configs")
            if not isinstance(result, str):
                pool = result.tightest.kv
                inside.append(pool.low - 0.005 * GIB <= log.kv_bytes <= pool.high + 0.005 * GIB)
    assert len(inside) >= 65
    assert sum(inside) >= 0.85 * len(inside)


def test_refusals_are_predicted_and_starts_are_not_refused():
    starts = engine_memory.starts()
    refused = [s for s in starts if not s.started and s.predicted is not None]
    assert len(refused) >= 13
    assert sum(s.predicted is False for s in refused) >= 0.95 * len(refused)
    judged = [s for s in starts if s.started and s.predicted is not None]
    assert len(judged) >= 80
    assert [s.case_id for s in judged if s.predicted is False] == []
    # Not judged: boards that share their memory with the host, where the range covers both.
    assert {s.case_id for s in starts if "shared with the host" in s.how} == {"L074", "L191"}


# ---- single facts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "activation_gib", "non_torch_gib", "kv_gib"),
    [("0.16.0", 5.64, 0.13, 41.94), ("0.17.0", 2.23, 0.13, 45.34), ("0.18.0", 2.23, 0.25, 45.23)],
)
def test_qwen3_14b_over_versions(version, activation_gib, non_torch_gib, kv_gib):
    # llm-d-planner, pull request 205: a sweep on an H100 whose runtime totals 79.19 GiB.
    chosen = EngineSettings(
        version=version, memory_utilization=0.95, max_model_len=8192, device_memory_bytes=79.19 * GIB
    )
    rank = ledger(models.load("Qwen/Qwen3-14B"), H100, Layout(), chosen).tightest
    assert rank.bytes_of(LineKind.WEIGHTS) / GIB == pytest.approx(27.52, abs=0.01)
    assert rank.bytes_of(LineKind.ACTIVATION) / GIB == pytest.approx(activation_gib, abs=0.01)
    assert rank.bytes_of(LineKind.NON_TORCH) / GIB == pytest.approx(non_torch_gib, abs=0.01)
    assert rank.kv.best / GIB == pytest.approx(kv_gib, abs=0.03)


@pytest.mark.parametrize(
    ("layout", "logged_gib"),
    [
        (Layout(), 14.99),
        (Layout(tp=2), 7.51),
        (Layout(tp=4), 3.77),
        (Layout(pp=2), 7.51),
        (Layout(pp=4), 4.26),
    ],
)
def test_weights_of_llama_8b_by_layout(layout, logged_gib):
    ranks = ledger(LLAMA_8B, H100, layout, EngineSettings()).ranks
    heaviest = max(rank.bytes_of(LineKind.WEIGHTS) for rank in ranks)
    assert heaviest / GIB == pytest.approx(logged_gib, abs=0.006)


def test_pipeline_stages_hold_every_layer_once():
    # vLLM: the remainder goes to the stages before the last.
    assert [s.last - s.first for s in pipeline_stages(30, 4)] == [7, 8, 8, 7]
    assert [s.last - s.first for s in pipeline_stages(61, 8)][-1] == 7
    with pytest.raises(InputError, match="pp"):
        pipeline_stages(4, 8)


def test_captured_graph_sizes_are_vllms():
    assert captured_sizes(1024) == (51, 51)
    assert captured_sizes(256) == (51, 35)
    assert captured_sizes(32) == (11, 7)
    assert captured_sizes(16) == (7, 5)


def test_torch_counts_whole_segments_of_large_tensors():
    assert allocated(1) == 512
    assert allocated(10 * MIB) == 10 * MIB
    assert allocated(11.5 * MIB) == 12 * MIB  # the rest of 0.5 MiB is not split off
    assert allocated(10.5 * MIB) == 10.5 * MIB  # a rest of 1.5 MiB is


@pytest.mark.parametrize(
    ("version", "gib", "tp", "fraction"),
    [("0.4.3", 24, 1, 0.88), ("0.4.6", 80, 8, 0.81), ("0.4.10", 15.99, 1, 0.819)],
)
def test_sglangs_default_fraction(version, gib, tp, fraction):
    found = default_static_fraction(sglang_version(version), card_bytes=gib * GIB, tp=tp)
    assert found == pytest.approx(fraction, abs=0.003)


@pytest.mark.parametrize(
    ("version", "gib", "captured", "reserved_mib"),
    [
        ("0.5.19", 24, False, 512 + 1.5 * 2048 + 2 * 24 + 128),
        ("0.5.20", 24, False, 512 + 1.5 * 4096 + 2 * 48 + 128),  # chunks of 4,096 and 48 graphs from here on
        ("0.5.23", 48, False, 512 + 1.5 * 4096 + 2 * 32 + 128),
        ("0.5.8", 80, True, 512 + 1.5 * 8192 + 2 * 256 + 128),
        ("0.5.10", 80, True, 512 + 1.5 * 8192 + 2 * 256 + 128 + 8 * 58),  # 58 lengths up to 8,192, 8 MiB each
        (None, 80, True, 512 + 1.5 * 8192 + 2 * 256 + 128 + 8 * 58),
    ],
)
def test_sglangs_reserve_is_its_sources(version, gib, captured, reserved_mib):
    """`handle_gpu_memory_settings` and `reserve_for_graph_mb` of the published wheels, on one GPU."""
    found = default_static_fraction(
        sglang_version(version), card_bytes=gib * GIB, tp=1, prompts_captured=captured
    )
    assert found == pytest.approx(1 - reserved_mib / (gib * 1024), abs=0.0006)


@pytest.mark.parametrize(
    ("model", "layout", "captured"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", Layout(), True),
        ("meta-llama/Meta-Llama-3.1-8B", Layout(pp=2), False),
        ("deepseek-ai/DeepSeek-V3", Layout(tp=8), False),
    ],
)
def test_prompts_are_captured_where_the_source_captures_them(model, layout, captured):
    spec, card = models.load(model), accelerators.load("h200-sxm-141gb")
    older, newer = (
        ledger(spec, card, layout, EngineSettings(engine=Engine.SGLANG, version=version), nearest=False)
        for version in ("0.5.8", "0.5.10")
    )
    lost = older.tightest.budget.best - newer.tightest.budget.best
    assert (lost > 0.3 * GIB) is captured
    assert lost == 0 or captured


@pytest.mark.reference
def test_kimi_k25_under_sglang(reference):
    # 283 GB free, TP8: a static fraction of 0.825, 160.63 GiB of cache, 2,454,421 tokens on every rank.
    spec = named_spec("moonshotai__Kimi-K2.5", reference / "configs")
    chosen = EngineSettings(engine=Engine.SGLANG, version="0.5.8", free_memory_bytes=283.58 * GIB)
    result = ledger(spec, accelerators.load("gb300-gpu"), Layout(tp=8), chosen)
    assert result.kv.tokens == pytest.approx(2_454_421, rel=0.005)


# ---- llama.cpp: the caches, exactly ---------------------------------------------------------------------------

LLAMA_ROWS = [
    ("L026", "deepseek-ai__DeepSeek-R1", {"kv_dtype": "q8_0", "max_model_len": 32768}, "1166.62 MiB", 0.0),
    (
        "L027",
        "openai__gpt-oss-120b",
        {
            "kv_dtype": "f16",
            "max_model_len": 131_072,
            "max_seqs": 2,
            "max_batched_tokens": 1024,
            "unified_cache": False,
        },
        "9216.00 MiB",
        90.0,
    ),
    (
        "L112",
        "shape:gpt-oss-20b",
        {"kv_dtype": "q8_0", "max_model_len": 8192, "max_batched_tokens": 128},
        "102.00 MiB + 3.19 MiB SWA",
        3.19,
    ),
    ("L116", "meta-llama__Meta-Llama-3.1-8B", {"max_model_len": 8192}, "1024.00 MiB", 0.0),
    (
        "L211",
        "nvidia__Qwen3.6-27B-NVFP4",
        {"kv_dtype": "q8_0", "max_model_len": 131_072, "max_seqs": 4},
        "4352.00 MiB + 598.50 MiB recurrent",
        598.5,
    ),
    (
        "L212",
        "shape:qwen3.5-9b",
        {"max_model_len": 135_168, "max_seqs": 4},
        "4224.00 MiB + 201.00 MiB recurrent",
        201.0,
    ),
    (
        "L213",
        "nvidia__Qwen3.6-27B-NVFP4",
        {"max_model_len": 8192, "draft_tokens": 2},
        "512.00 MiB + 448.88 MiB recurrent",
        448.88,
    ),
    ("L214", "shape:qwen3.5-9b", {"max_model_len": 8192}, "256.00 MiB + 50.25 MiB recurrent", 50.25),
]


@pytest.mark.reference
@pytest.mark.parametrize(("case_id", "config", "chosen", "cell", "beside_mib"), LLAMA_ROWS)
def test_llama_cpp_caches_are_exact(cases, reference, case_id, config, chosen, cell, beside_mib):
    with (cases / "engine_logs.csv").open(newline="", encoding="utf-8") as file:
        row = next(r for r in csv.DictReader(file) if r["case_id"] == case_id)
    assert row["reported_kv_gib_per_gpu"] == cell
    given_settings = EngineSettings(engine=Engine.LLAMA_CPP, **chosen)
    shape = shape_of(named_spec(config, reference / "configs"))
    start = resolve_llama(shape, given_settings)
    cells = cells_of(start, given_settings)
    cache = cache_bytes_of(shape.stage_blocks(0, shape.n_layers), start, cells, given_settings)
    main = float(re.match(r"[\d.]+", cell)[0])
    assert cache.full / MIB == pytest.approx(main, abs=0.006)
    assert (cache.windowed + cache.states) / MIB == pytest.approx(beside_mib, abs=0.006)


def test_llama_cpp_compute_buffer():
    # Qwen3.6-27B class with flash attention: 495.00 MiB logged, 4 x 512 x (248,320 + 5,120) bytes.
    assert pytest.approx(495.0, abs=0.01) == 4 * 512 * (248_320 + 5_120) / MIB
    spec = models.load("meta-llama/Meta-Llama-3.1-8B")
    slow = EngineSettings(engine=Engine.LLAMA_CPP, max_model_len=8192, flash_attention=False)
    rank = ledger(spec, accelerators.load("rtx-3090"), Layout(), slow).tightest
    assert rank.bytes_of(LineKind.ACTIVATION) / MIB == pytest.approx(
        560.0, abs=0.01
    )  # logged with 8192 tokens


@pytest.mark.parametrize(
    ("gpu", "tokens"), [("v100-sxm2-16gb", 40_000), ("rtx-3090", 2048), ("rtx-5090", 2048)]
)
def test_v0_chunks_long_prompts_from_ampere_on(gpu, tokens):
    # Logged at 40,000 tokens on a 15.77 GiB card: a peak of 2.53 GiB, which only a whole prompt explains.
    chosen = EngineSettings(version="0.6.4", max_model_len=40_000)
    rank = ledger(LLAMA_8B, accelerators.load(gpu), Layout(tp=2), chosen).tightest
    note = next(line.note for line in rank.lines if line.kind is LineKind.ACTIVATION)
    assert f"{tokens:,} tokens" in note


def test_ollama_moves_layers_until_the_rest_fits():
    chosen = EngineSettings(engine=Engine.OLLAMA, quantization="q4_k", max_model_len=8192)
    result = ledger(LLAMA_70B, accelerators.load("rtx-4090"), Layout(), chosen)
    assert result.verdict.fits
    assert any("run on the CPU" in text for text in result.assumptions)


def test_the_document_carries_the_bundled_figures():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert report() in text
    assert with_report(text) == text
