"""How many sequences run at once, against an allocator that gives blocks and takes them back one pass after another."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.answer import answer
from calc.engine import Engine
from calc.layout import Layout
from calc.memory.engines import ledger
from calc.memory.engines.kv_groups import (
    CacheGroups,
    CacheKind,
    CacheLayer,
    StepLimits,
    blocks_of_sequence,
    most_running,
)
from calc.memory.engines.ledger import KvNumbers
from calc.memory.engines.settings import EngineSettings
from calc.scenario import Scenario
from presets import accelerators, models
from presets.resolve import resolve

BLOCK = 16
H200 = accelerators.load("h200-sxm-141gb")


def groups_of(windows: list[int | None]) -> CacheGroups:
    layers = [
        CacheLayer(
            kind=CacheKind.SLIDING if window else CacheKind.FULL,
            page_bytes=4096,
            block_size=BLOCK,
            window=window,
        )
        for window in windows
    ]
    return CacheGroups(groups=tuple((1, layer) for layer in layers), uniform=False)


def held(window: int | None, computed: int, new: int) -> int:
    """Blocks that vLLM's manager holds in a pass: those wholly before the window go, then those of new tokens come."""
    gone = max(0, computed - window + 1) // BLOCK if window else 0
    return -(-(computed + new) // BLOCK) - gone


def most_blocks(windows: list[int | None], prompt: int, output: int, *, budget: int, sequences: int) -> int:
    """Most blocks in any pass of a prompt and its answer while all others are at their longest."""
    end = prompt + output
    others = (sequences - 1) * max(
        sum(held(window, done, 1) for window in windows) for done in range(end - BLOCK, end)
    )
    done, most = 0, 0
    while done < end:
        new = min(budget, prompt - done) if done < prompt else 1
        most = max(most, sum(held(window, done, new) for window in windows))
        done += new
    return most + others


@settings(deadline=None, max_examples=60)
@given(
    windows=st.lists(st.sampled_from([None, 48, 128, 1024]), min_size=1, max_size=5),
    prompt=st.integers(16, 6000),
    output=st.integers(16, 200),
    budget=st.sampled_from([64, 512, 8192]),
    room=st.integers(2, 12),
)
def test_what_is_counted_is_what_the_allocator_holds(windows, prompt, output, budget, room):
    limits = StepLimits(max_batched_tokens=budget)
    needed = most_blocks(windows, prompt, output, budget=budget, sequences=room)
    found = most_running(groups_of(windows), needed, prompt + output, limits)
    assert found <= room
    begun = 2 * len(windows) * room + sum(held(window, prompt, output) for window in windows)
    assert most_running(groups_of(windows), needed + begun, prompt + output, limits) >= room


def test_long_prompts_of_a_windowed_model_run_beside_each_other():
    """Gemma 3 27B's groups on one H100: prompts of 8,000 tokens hold 3,590 blocks while computed, 903 afterwards."""
    windows: list[int | None] = [None] + [1024] * 6
    after = sum(held(window, 8191, 1) for window in windows)
    peak = sum(
        blocks_of_sequence(layer, 8192, StepLimits(max_batched_tokens=8192))
        for _, layer in groups_of(windows).groups
    )
    assert (peak, after) == (3590, 896)
    found = most_running(groups_of(windows), 12_479, 8192, StepLimits(max_batched_tokens=8192))
    assert found == 1 + (12_479 - peak) // 902  # a window may begin within a block
    assert found > 2 * (12_479 // peak)


def test_the_most_of_one_sequence_is_the_engines_own():
    """vLLM's test of its admission cap: a window of 1,024, 1,024 tokens a step, blocks of 16: 129."""
    ((_, layer),) = groups_of([1024]).groups
    assert blocks_of_sequence(layer, 16_384, StepLimits(max_batched_tokens=1024)) == 129


def numbers(model: str, engine: Engine, length: int, **chosen: object) -> KvNumbers:
    asked = EngineSettings(engine=engine, max_model_len=length, **chosen)  # type: ignore[arg-type]
    return ledger(models.load(model), H200, Layout(tp=8), asked, nearest=False).kv


@pytest.mark.parametrize(
    "model", ["meta-llama/Meta-Llama-3.1-8B", "deepseek-ai/DeepSeek-V3", "tiiuae/falcon-mamba-7b"]
)
@pytest.mark.parametrize("length", [500, 4096])
def test_without_windows_as_many_run_as_the_engine_prints(model, length):
    found = numbers(model, Engine.VLLM, length)
    assert found.most_running == int(found.max_concurrency)


def test_slots_of_recurrent_state_bound_requests():
    """A public start of SGLang: 360 slots of recurrent state, 72 running requests."""
    model = "Qwen/Qwen3-Next-80B-A3B-Instruct"
    assert numbers(model, Engine.SGLANG, 64, state_slots=360).most_running == 72
    assert numbers(model, Engine.SGLANG, 64, state_slots=360, prefix_caching=False).most_running == 360
    long = numbers(model, Engine.SGLANG, 262_144, state_slots=360)
    assert long.most_running == long.tokens // 262_144


def test_short_sequences_fill_the_pool_of_windows_first():
    """SGLang's pool of windows has 0.8 times the tokens of the full one (swa_full_tokens_ratio)."""
    found = numbers("google/gemma-3-27b-it", Engine.SGLANG, 512)
    assert found.most_running == int(found.tokens * 0.8) // 512


def test_a_stage_that_keeps_nothing_for_tokens_does_not_bind():
    """Granite 4.0-H-Small has 4 attention layers in 40: of 7 stages some have none, and the server still serves tokens."""
    asked = EngineSettings(engine=Engine.SGLANG, max_model_len=1000)
    model = models.load("ibm-granite/granite-4.0-h-small")
    one = ledger(model, H200, Layout(), asked, nearest=False).kv
    seven = ledger(model, H200, Layout(pp=7), asked, nearest=False).kv
    assert seven.tokens > one.tokens > 0
    assert seven.longest_length == one.longest_length == 1000


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"model": "google/gemma-3-27b-it", "gpu": "h100-sxm5-80gb", "input_tokens": 8001.0},
        {"model": "meta-llama/Meta-Llama-3.1-8B", "gpu": "rtx-4090", "engine": "llama.cpp", "quantization": "q4_k_m"},
        {"model": "Qwen/Qwen3-8B", "gpu": "l4", "input_tokens": 1000.0, "output_tokens": 1.0},
    ],
)  # fmt: skip
def test_the_tokens_of_a_cache_hold_the_sequences_that_are_said_to_fit(asked):
    """In whole blocks of 16: paging never fits fewer than what the answer says, and reserving never more than paging."""
    scenario = Scenario(tpot_s=None, rate_per_s=1.0, **asked)
    result = answer(resolve(scenario))
    kept = round(scenario.input_tokens + scenario.output_tokens)
    paged = result.memory.tokens // 16 // -(-kept // 16)
    assert paged >= result.sequences.fit
    assert result.memory.tokens // max(kept, 4096) <= paged
    if asked.get("engine") == "llama.cpp":
        assert result.memory.tokens == 4096 * result.sequences.fit
