"""Launch commands: every flag and value stands in the table of what the engine's own parser takes."""

import importlib
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from calc.answer import answer
from calc.engine import Engine
from calc.expected import engine_settings
from calc.handover import handover_of
from calc.layout import Layout
from calc.memory.engines import EngineSettings, ledger
from calc.memory.flag_scope import FLAG_SCOPES, flag_value, rank_value
from calc.memory.launch_flags import launch_flags, tensorrt_options
from calc.memory.launch_table import SWITCH, TABLES, problems_of
from calc.replica_model import replica_model
from calc.scenario import Scenario
from presets.resolve import resolve

LAYOUTS = (Layout(), Layout(tp=4, pp=2, dp=2, ep=8), Layout(tp=8, attention_dp=8, ep=8))


def settings_of(engine):
    """Every setting that a command can carry, switched on and off."""
    caches = (
        (None, "bf16", "fp16", "fp8")
        if engine in (Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM)
        else (None, "fp16", "q8_0", "q4_0")
    )
    for cache, eager, prefix, number in itertools.product(caches, (False, True), (None, False), (None, 64)):
        yield EngineSettings(
            engine=engine,
            memory_utilization=None if number is None else 0.9,
            max_model_len=None if number is None else 8192,
            max_batched_tokens=number,
            max_seqs=number,
            block_size=None if number is None else 16,
            kv_dtype=cache,
            quantization="fp8",
            available_kv_bytes=None if number is None else 5.5e10,
            enforce_eager=eager,
            prefix_caching=prefix,
            chunked_prefill=False if eager else None,
            hybrid_cache=False if eager else None,
            decode_context_parallel=2 if number else 1,
            window_pool_ratio=0.5,
            state_slots=number,
            unified_cache=not eager,
            full_window_cache=eager,
            gpu_layers=number,
            role="prefill" if eager else "decode",
            host_cache_bytes_per_gpu=None if number is None else 1.4e11,
        )


def commands_of(engine):
    return [launch_flags("org/model", layout, chosen) for layout in LAYOUTS for chosen in settings_of(engine)]


@pytest.mark.parametrize("engine", list(Engine))
def test_every_command_is_one_that_the_engine_takes(engine):
    for words in commands_of(engine):
        assert problems_of(engine, words) == (), words


def test_whole_prompts_have_room_in_vllms_step():
    """SchedulerConfig refuses a token budget below the length limit unless prompts are chunked."""
    whole = EngineSettings(max_model_len=8192, max_batched_tokens=2048, chunked_prefill=False)
    words = launch_flags("m", Layout(), whole)
    assert words[words.index("--max-num-batched-tokens") + 1] == "8192"
    assert "--no-enable-chunked-prefill" in words


@pytest.mark.parametrize("engine", list(Engine))
def test_the_table_names_its_version_and_holds_what_we_use(engine):
    table = TABLES[engine]
    assert table.version
    assert table.source
    assert table.date >= "2026"
    used = {
        word.split("=")[0]
        for words in commands_of(engine)
        for word in words
        if word.startswith(("--", "OLLAMA"))  # a value can be negative, and no flag of ours is short
    }
    assert used <= set(table.flags)
    assert len(used) >= 3


def test_what_an_engine_does_not_take_is_said():
    words = launch_flags("m", Layout(), EngineSettings(engine=Engine.OLLAMA, kv_dtype="fp8"))
    assert "OLLAMA_KV_CACHE_TYPE fp8" in problems_of(Engine.OLLAMA, words)[0]
    assert "is not a flag" in problems_of(Engine.VLLM, ("vllm", "serve", "m", "--swap-space", "4"))[0]
    assert "whole number" in problems_of(Engine.VLLM, ("vllm", "serve", "m", "--max-num-seqs", "1.5"))[0]
    assert "needs a value" in problems_of(Engine.SGLANG, (*TABLES[Engine.SGLANG].start, "--tp-size"))[0]


def test_data_parallel_attention_is_spelled_as_each_engine_does():
    layout = Layout(tp=8, attention_dp=8, ep=8)
    vllm = " ".join(launch_flags("m", layout, EngineSettings()))
    assert vllm == "vllm serve m --data-parallel-size 8 --enable-expert-parallel"
    sglang = " ".join(launch_flags("m", layout, EngineSettings(engine=Engine.SGLANG)))
    assert "--tp-size 8 --dp-size 8 --ep-size 8 --enable-dp-attention" in sglang
    assert tensorrt_options(layout, EngineSettings(kv_dtype="fp8")) == (
        "enable_attention_dp: true\nkv_cache_config:\n  dtype: fp8\n"
    )


@pytest.mark.parametrize(
    ("engine", "flag", "most", "said"),
    [
        (Engine.VLLM, "--max-num-seqs", 265, 33),  # each rank is an engine core with the whole flag
        (Engine.TENSORRT_LLM, "--max_batch_size", 265, 33),
        (Engine.SGLANG, "--max-running-requests", 265, 264),  # SGLang divides the flag by its ranks itself
        (Engine.VLLM, "--max-num-seqs", 3, 1),
        (Engine.SGLANG, "--max-running-requests", 3, 8),  # 3 // 8 would leave no request on any rank
    ],
)
def test_the_limit_of_sequences_is_of_one_rank_or_of_all_as_each_engine_counts(engine, flag, most, said):
    asked = Scenario(engine=engine, tp=8, attention_dp=8, ep=8, max_seqs=most)
    words = launch_flags("m", asked.layout, engine_settings(asked, asked.layout, max_model_len=None))
    assert words[words.index(flag) + 1] == str(said)


def test_an_engine_without_ranks_of_attention_has_the_slots_of_all():
    asked = Scenario(
        model="deepseek-ai/DeepSeek-V3",
        gpu="h200-sxm-141gb",
        engine="sglang",
        tp=8,
        ep=8,
        attention_dp=8,
        rate_per_s=2.0,
        tpot_s=0.1,
        max_seqs=100,
    )
    said = {command.engine: command.words for command in handover_of(answer(resolve(asked))).commands}
    slots = said[Engine.LLAMA_CPP]
    assert slots[slots.index("--parallel") + 1] == "100"
    assert "OLLAMA_NUM_PARALLEL=100" in said[Engine.OLLAMA]
    assert said[Engine.VLLM][said[Engine.VLLM].index("--max-num-seqs") + 1] == "12"


def test_replicas_behind_one_front_divide_no_flag_of_sglang():
    """Attention DP parts the chunk and the requests; `--dp-size` alone starts whole servers (0.5.23, data parallelism)."""
    asked = Scenario(engine="sglang", tp=2, dp=4, max_seqs=64, max_batched_tokens=2048)
    words = launch_flags("m", asked.layout, engine_settings(asked, asked.layout, max_model_len=None))
    assert words[words.index("--max-running-requests") + 1] == "16"
    assert words[words.index("--chunked-prefill-size") + 1] == "2048"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("engine", "flag"), [(engine, flag) for engine, flags in FLAG_SCOPES.items() for flag in flags]
)
def test_what_a_rank_gets_of_a_flag_is_what_it_was_meant_to_get(engine, flag, layout):
    typed = flag_value(engine, flag, 24, layout)
    assert rank_value(engine, flag, typed, layout) == 24
    assert flag_value(engine, flag, None, layout) is None


def test_a_typed_budget_with_attention_dp_starts_what_is_timed():
    """SGLang 0.5.23 logs "chunked prefill size is adjusted from 16384 to 2048" for a chunk of 2,048 on eight ranks."""
    asked = Scenario(model="deepseek-ai/DeepSeek-V3", gpu="h200-sxm-141gb", engine="sglang", tp=8, ep=8)
    split = replace(asked, attention_dp=8, max_batched_tokens=2048)
    given = resolve(split)
    assert replica_model(given, split.layout).profile.engine.chunk_tokens == 2048
    words = launch_flags("m", split.layout, engine_settings(split, split.layout, max_model_len=None))
    assert words[words.index("--chunked-prefill-size") + 1] == "16384"
    found = ledger(
        given.spec,
        given.offer.accelerator,
        split.layout,
        engine_settings(split, split.layout, max_model_len=4096),
        nearest=False,
    )
    # handle_gpu_memory_settings reads the undivided chunk: 512 + 1.5 x 16384 + 2 x 512 + 1024 + 4.5 x 512 x 8 MiB of the card
    card_mib = given.offer.accelerator.driver_memory_bytes / 2**20
    reserved = 512 + 1.5 * 16_384 + 2 * 512 + 1024 + 4.5 * 512 * 8
    assert any(f"{(card_mib - reserved) / card_mib:.3f}" in text for text in found.assumptions)


def test_without_a_budget_attention_dp_parts_the_engines_own_chunk():
    """8,192 tokens on these cards, 1,024 on each of eight ranks; the command names no chunk, as the default is meant."""
    asked = Scenario(model="deepseek-ai/DeepSeek-V3", gpu="h200-sxm-141gb", engine="sglang", tp=8, ep=8)
    chunks = {
        ranks: replica_model(resolve(one), one.layout).profile.engine.chunk_tokens
        for ranks in (1, 8)
        for one in [replace(asked, attention_dp=ranks)]
    }
    assert chunks == {1: 8192, 8: 1024}
    split = replace(asked, attention_dp=8)
    words = launch_flags("m", split.layout, engine_settings(split, split.layout, max_model_len=None))
    assert "--chunked-prefill-size" not in words
    vllm = replace(asked, engine="vllm", attention_dp=8)
    assert replica_model(resolve(vllm), vllm.layout).profile.engine.chunk_tokens == 8192


def test_pools_and_host_memory_are_spelled_as_each_engine_does():
    """vLLM: GiB of all ranks together, and a producer and a consumer of caches; SGLang: GB of each rank; llama.cpp: MiB."""
    room = EngineSettings(host_cache_bytes_per_gpu=64 * 2**30, role="decode")
    words = launch_flags("m", Layout(tp=4), room)
    assert words[words.index("--kv-offloading-size") + 1] == "256"
    assert json.loads(words[-1]) == {"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}
    sglang = launch_flags("m", Layout(tp=4), replace(room, engine=Engine.SGLANG, role="prefill"))
    text = " ".join(sglang)
    assert "--hicache-size 68 --disaggregation-mode prefill --enable-hierarchical-cache" in text
    llama = launch_flags("m", Layout(), replace(room, engine=Engine.LLAMA_CPP))
    assert llama[llama.index("--cache-ram") + 1] == "65536"
    options = tensorrt_options(Layout(), replace(room, engine=Engine.TENSORRT_LLM))
    assert options == f"kv_cache_config:\n  host_cache_size: {64 * 2**30}\n"


def test_switches_are_the_ones_without_a_value():
    switches = {name for table in TABLES.values() for name, kind in table.flags.items() if kind == SWITCH}
    assert {"--enforce-eager", "--enable-expert-parallel", "--kv-unified"} <= switches


@pytest.mark.parametrize(
    ("layout", "words"), [(Layout(), ()), (Layout(tp=4), ("--split-mode", "tensor")), (Layout(pp=4), ())]
)
def test_llama_cpp_shares_tensors_where_the_layout_does(layout, words):
    """Its default puts whole layers on each GPU (docs/multi-gpu.md of ggml-org/llama.cpp), which is a pipeline."""
    said = launch_flags("m", layout, EngineSettings(engine=Engine.LLAMA_CPP))
    assert said[said.index("--split-mode") :][:2] == words if words else "--split-mode" not in said


@pytest.mark.endpoint
def test_llama_cpps_flags_are_in_its_own_library():
    """The names as text in the library that the test server runs on; abbreviations change, these have not."""
    library = importlib.import_module("xllamacpp")
    binary = next(Path(library.__file__).parent.glob("xllamacpp*.so")).read_bytes()
    for name in TABLES[Engine.LLAMA_CPP].flags:
        assert name.encode() in binary, name
