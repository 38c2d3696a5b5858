"""llama.cpp's slots are a setting of the plan, and memory ends them, or the program itself."""

from dataclasses import replace

import pytest

from calc.answer import answer
from calc.engine import Engine
from calc.handover import handover_of
from calc.layout import Layout
from calc.memory.engines import ledger
from calc.memory.engines.llama_cpp import MOST_SLOTS, most_slots
from calc.memory.engines.settings import EngineSettings
from calc.memory.launch_flags import launch_flags
from calc.scenario import Scenario
from calc.sizing import Limit
from presets import accelerators, models
from presets.resolve import resolve

LLAMA_8B = models.load("meta-llama/Meta-Llama-3.1-8B")


def settings(length, **more):
    return EngineSettings(engine=Engine.LLAMA_CPP, quantization="q4_k_m", max_model_len=length, **more)


@pytest.mark.parametrize("length", [4096, 16_384])
def test_slots_share_the_free_memory(length):
    """32 layers of 8 heads of 128 in fp16: 128 KiB a token, so 512 MiB for a slot of 4,096."""
    card = accelerators.load("rtx-4090")
    free = ledger(LLAMA_8B, card, Layout(), settings(length), nearest=False).kv.available_bytes
    assert most_slots(LLAMA_8B, card, Layout(), settings(length)) == int(free // (length * 128 * 1024))


def test_slots_end_where_the_program_ends():
    card = accelerators.load("apple-m3-ultra")
    assert most_slots(LLAMA_8B, card, Layout(), settings(512)) == MOST_SLOTS


def test_where_the_program_ends_before_memory_the_answer_says_so():
    asked = Scenario(
        model="openai/gpt-oss-20b", gpu="h100-sxm5-80gb", engine="llama.cpp", tpot_s=None, rate_per_s=5.0
    )
    found = answer(resolve(asked)).sequences
    assert (found.binding, found.batch) == (Limit.ENGINE, 256)  # LLAMA_MAX_SEQ
    smaller = answer(resolve(replace(asked, gpu="rtx-4090"))).sequences
    assert smaller.binding is Limit.KV_MEMORY
    assert smaller.batch < 256


def test_a_cap_below_the_room_is_named_as_the_limit():
    asked = Scenario(model="Qwen/Qwen3-0.6B", gpu="l4", engine="llama.cpp", tpot_s=None, max_seqs=4)
    found = answer(resolve(asked)).sequences
    assert (found.binding, found.batch) == (Limit.MAX_SEQS, 4)
    assert answer(resolve(replace(asked, max_seqs=None))).sequences.binding is Limit.KV_MEMORY


def test_a_card_without_room_has_no_slot():
    card = accelerators.load("rtx-3070")
    assert most_slots(models.load("meta-llama/Llama-2-70b-hf"), card, Layout(), settings(4096)) == 0


@pytest.mark.parametrize("most", [None, 8])
def test_the_command_starts_as_many_slots_as_the_plan_counts(most):
    asked = Scenario(
        model="meta-llama/Meta-Llama-3.1-8B",
        gpu="rtx-4090",
        engine="llama.cpp",
        quantization="q4_k_m",
        tpot_s=None,
        rate_per_s=0.5,
        max_seqs=most,
    )
    result = answer(resolve(asked))
    words = handover_of(result).own[0].words
    slots = int(words[words.index("--parallel") + 1])
    assert slots == result.sequences.batch == (most or result.sequences.fit)
    assert int(words[words.index("--ctx-size") + 1]) == slots * 4096
    assert "--kv-unified" not in words
    assert any("every slot has cells of its own for 4,096 tokens" in text for text in result.assumptions)


def test_one_slot_is_said_too():
    """Without a number newer servers log "n_parallel is set to auto, using n_parallel = 4 and kv_unified = true"."""
    words = launch_flags("m", Layout(), settings(4096))
    assert words[words.index("--parallel") + 1] == "1"
    assert "--kv-unified" not in words


@pytest.mark.parametrize(("length", "cells"), [(4096, 4096), (5000, 5120), (1, 256)])
def test_a_context_is_padded_to_256_cells(length, cells):
    """`GGML_PAD(n_ctx, 256)`, and of each slot's share, in src/llama-context.cpp: 128 KiB a cell for this model."""
    card = accelerators.load("rtx-4090")
    for more, slots in (({}, 1), ({"max_seqs": 3, "unified_cache": False}, 3)):
        found = ledger(LLAMA_8B, card, Layout(), settings(length, **more), nearest=False).kv
        assert found.printed_tokens == slots * cells
        assert found.needed_bytes == slots * cells * 128 * 1024
