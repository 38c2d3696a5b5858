import pytest

from calc.memory import kv
from calc.quantization import stored_bytes
from calc.state_map import repeats, stacking, state_rows
from calc.weight_check import check_weights
from presets import models


def test_llama_3_is_one_line():
    assert [p.text for p in stacking(models.load("meta-llama/Meta-Llama-3.1-8B"))] == [
        "32 x full attention + MLP"
    ]


def test_qwen3_next_is_twelve_times_three_delta_nets_and_an_attention():
    (pattern,) = stacking(models.load("Qwen/Qwen3-Next-80B-A3B-Instruct"))
    assert pattern.text == "12 x (3 x gated delta net + experts, full attention + experts)"


def test_nemotron_3_nano_counts_23_mamba_6_attention_and_23_mixture_layers():
    patterns = stacking(models.load("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"))
    counts = {}
    for pattern in patterns:
        for count, kind in pattern.layers:
            counts[kind] = counts.get(kind, 0) + pattern.times * count
    assert counts == {"mamba2": 23, "experts": 23, "full attention": 6}
    assert len(patterns) < 8


@pytest.mark.parametrize("preset_id", models.preset_ids())
def test_rows_add_up_to_the_sequence(preset_id):
    spec, tokens = models.load(preset_id), 3000
    total = 0
    for row in state_rows(spec):
        counted = min(tokens, row.window) if row.window else tokens
        if row.per.endswith(" tokens"):
            counted = tokens // int(row.per.split()[0])
        total += row.fixed_bytes + (0 if row.per == "encoder token" else counted * row.bytes_each)
    assert total == kv.sequence_bytes(spec, tokens)


@pytest.mark.parametrize("preset_id", models.preset_ids())
def test_patterns_hold_every_layer(preset_id):
    spec = models.load(preset_id)
    if spec.decoder is not None:
        layers = sum(p.times * count for p in stacking(spec) for count, _ in p.layers)
        assert layers == spec.decoder.n_layers


def test_repeats_cover_the_sequence_in_order():
    kinds = list("MEMEM*EMEMEM*EMEMEM*E")
    flat = [kind for times, unit in repeats(kinds) for _ in range(times) for kind in unit]
    assert flat == kinds


def test_a_head_stored_twice_is_named():
    spec = models.load("Qwen/Qwen3-0.6B")
    ours = stored_bytes(spec).stored
    assert check_weights(spec, ours).why == "equal to the byte"
    twice = check_weights(spec, ours + 2 * 151936 * 1024)
    assert twice.difference_bytes == 311_164_928
    assert "tied head" in twice.why
    assert check_weights(spec, 2 * ours).why == "not explained by the config"
