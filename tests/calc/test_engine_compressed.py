"""DeepSeek-V4's caches under every engine: pages of entries, windows and compressor states, against a public refusal."""

import pytest

from calc.engine import Engine
from calc.layout import Layout
from calc.memory.engines import EngineSettings, LineKind, ledger
from calc.units import GIB
from presets import accelerators
from presets.engine_log_models import named_spec

GH200 = accelerators.load("gh200-96gb")
B300 = accelerators.load("b300-sxm-288gb")


@pytest.fixture(scope="module")
def flash(reference):
    return named_spec("deepseek-ai__DeepSeek-V4-Flash", reference / "configs")


@pytest.mark.reference
def test_a_public_refusal_is_met_to_its_last_digit(flash):
    # vLLM issue 44376 (June 2026, 2 GH200): 6.66 GiB are needed for 30,000 tokens, 5.44 are there, 13,528 would fit.
    chosen = EngineSettings(
        version="0.22.0", max_model_len=30_000, offline=True, available_kv_bytes=5.44 * GIB
    )
    found = ledger(flash, GH200, Layout(tp=2, ep=2), chosen)
    assert round(found.kv.needed_bytes / GIB, 2) == 6.66
    assert found.kv.longest_length == pytest.approx(
        13_528, rel=0.001
    )  # what is there is printed to two digits
    assert (found.kv.n_groups, found.kv.block_size) == (5, 256)
    assert not found.verdict.fits


@pytest.mark.reference
def test_states_bound_short_contexts_and_entries_long_ones(flash):
    def needed(length, tokens):
        chosen = EngineSettings(max_model_len=length, max_batched_tokens=tokens, available_kv_bytes=64 * GIB)
        return ledger(flash, B300, Layout(), chosen).kv.needed_bytes

    # What a step's tokens hold in windows and compressor states grows with them, whatever the context.
    assert needed(1_000_000, 16_384) - needed(1_000_000, 8_192) == needed(100_000, 16_384) - needed(
        100_000, 8_192
    )
    # Beyond the tokens of a step only entries are added, a block for every 256 tokens.
    half = needed(500_000, 8_192) - needed(8_192, 8_192)
    assert needed(1_000_000, 8_192) - needed(8_192, 8_192) == pytest.approx(2 * half, rel=0.02)


@pytest.mark.reference
def test_stages_hold_their_own_slots(flash):
    def blocks(pp):
        chosen = EngineSettings(max_model_len=65_536, available_kv_bytes=16 * GIB)
        return ledger(flash, B300, Layout(pp=pp), chosen).kv.num_blocks

    assert blocks(2) == pytest.approx(2 * blocks(1), rel=0.1)


@pytest.mark.reference
@pytest.mark.parametrize("engine", list(Engine))
def test_every_engine_charges_windows_and_entries(flash, engine):
    chosen = EngineSettings(engine=engine, max_model_len=131_072)
    found = ledger(flash, B300, Layout(tp=2), chosen, nearest=False)
    assert found.verdict.fits
    # 21 layers keep an entry of 512 and an index key of 128 for every 4 tokens, 20 layers an entry for every 128.
    least = 131_072 * (21 * (512 + 128) / 4 + 20 * 512 / 128)
    assert found.kv.needed_bytes > least
    if engine is Engine.SGLANG:
        assert found.kv.window_tokens == int(0.1 * found.kv.tokens)
        assert found.tightest.bytes_of(LineKind.STATES) == 257 * 20 * 128 * 1024 * 4
