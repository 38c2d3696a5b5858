"""What drafters add to a GPU: weights, caches, their pass in the profile, and the logits that the profile leaves out."""

import pytest

from calc.layout import Layout
from calc.memory.engines import EngineSettings, LineKind, ledger
from calc.parameters import count_parameters
from calc.units import GIB
from presets import accelerators, models

H100 = accelerators.load("h100-sxm5-80gb")
LLAMA_8B = models.load("meta-llama/Meta-Llama-3.1-8B")
LLAMA_1B = models.load("meta-llama/Llama-3.2-1B-Instruct")


def start(model=LLAMA_8B, layout=Layout(), **chosen):  # noqa: B008 - layouts are frozen
    return ledger(model, H100, layout, EngineSettings(max_model_len=8192, **chosen), nearest=False)


def weights(found):
    return found.tightest.bytes_of(LineKind.WEIGHTS)


def test_an_eagle_head_has_the_parameters_that_are_published():
    # yuhuili/EAGLE-LLaMA3.1-Instruct-8B: one layer of the target's shape without its first norm, and a matrix of 8,192 by 4,096.
    layer = 4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14_336
    head = weights(start(draft_tokens=3, draft_layers=1)) - weights(start())
    assert head == pytest.approx(2 * (layer + 8192 * 4096), rel=0.005)


def test_a_public_start_with_an_eagle_head_is_met():
    # 0.9.1, 131,072 tokens, 33 cache layers: 51.63 GiB of cache were logged on an H100.
    chosen = EngineSettings(version="0.9.1", max_model_len=131_072, draft_tokens=1, draft_layers=1)
    found = ledger(LLAMA_8B, H100, Layout(), chosen)
    assert found.kv.available_bytes / GIB == pytest.approx(51.63, rel=0.02)
    assert found.kv.block_bytes == 16 * 33 * 2 * 8 * 128 * 2


def test_a_drafting_model_brings_its_weights_and_its_cache():
    plain, drafted = start(), start(draft_tokens=4, drafter=LLAMA_1B)
    stored = 2 * count_parameters(LLAMA_1B).total
    assert weights(drafted) - weights(plain) == pytest.approx(stored, rel=0.04)  # and its rotary table
    assert drafted.kv.block_bytes - plain.kv.block_bytes == 16 * 16 * 2 * 8 * 64 * 2


def test_the_checkpoints_own_layers_draft_where_drafts_are_asked_for():
    model = models.load("deepseek-ai/DeepSeek-V3")
    layout = Layout(tp=8, ep=8)
    plain, asked = start(model, layout), start(model, layout, draft_tokens=1)
    refused = start(model, layout, draft_tokens=1, mtp=False)
    assert weights(asked) > weights(plain) == weights(refused)
    assert asked.kv.block_bytes * 61 == plain.kv.block_bytes * 62


def test_verifying_holds_two_more_logits_a_sequence_and_more_drafts_come_out_of_what_is_free():
    one, four = start(draft_tokens=1, max_seqs=512), start(draft_tokens=4, max_seqs=512)
    plain = start(max_seqs=512)
    more = one.tightest.bytes_of(LineKind.ACTIVATION) - plain.tightest.bytes_of(LineKind.ACTIVATION)
    assert more == pytest.approx(2 * 2 * 512 * LLAMA_8B.vocab_size)
    assert four.tightest.bytes_of(LineKind.ACTIVATION) == one.tightest.bytes_of(LineKind.ACTIVATION)
    line = next(line for line in four.tightest.lines if line.kind is LineKind.DRAFTS)
    assert not line.counted
    assert line.bytes.best == 3 * 512 * LLAMA_8B.vocab_size * 6
    assert four.kv.available_bytes == one.kv.available_bytes
    assert four.tightest.left.best < one.tightest.left.best


def test_the_drafters_pass_sets_the_peak_where_few_sequences_sample():
    few = {"max_batched_tokens": 16_384, "max_seqs": 2}
    plain, drafted = start(**few), start(draft_tokens=1, draft_layers=1, **few)
    # Its layer is as wide as the target's, whose hidden states are held beside it.
    kept = 16_384 * 4096 * 2
    more = drafted.tightest.bytes_of(LineKind.ACTIVATION) - plain.tightest.bytes_of(LineKind.ACTIVATION)
    assert more == pytest.approx(kept)


@pytest.mark.parametrize("pp", [2, 4])
def test_only_the_last_stage_drafts(pp):
    found = start(layout=Layout(pp=pp), draft_tokens=4, draft_layers=1, max_seqs=512)
    carrying = [rank.stage for rank in found.ranks if rank.bytes_of(LineKind.DRAFTS)]
    assert carrying == [pp - 1]
