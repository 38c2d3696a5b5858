"""The block map says of bundled models what their papers and configs say."""

import pytest

from calc.block_map import layer_groups
from calc.parameters import count_parameters
from presets import models


def test_a_layer_of_one_part_is_named_by_it_alone():
    groups = layer_groups(models.load("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"))
    assert {len(group.parts) for group in groups} == {1}  # its layers mix tokens or have experts, never both
    assert "none" not in {part for group in groups for part in group.parts}
    both = layer_groups(models.load("mistralai/Mistral-7B-v0.1"))[0]
    assert both.parts == (both.token_mixing, both.feed_forward)


def test_mistral_7b_is_32_equal_layers_with_a_window_of_4096():
    groups = layer_groups(models.load("mistralai/Mistral-7B-v0.1"))
    assert [(g.first, g.count, g.last) for g in groups] == [(0, 32, 31)]
    assert groups[0].token_mixing == "sliding window 4,096"
    assert groups[0].feed_forward == "gated MLP 14,336"


def test_llama2_has_full_attention_and_the_published_layer_size():
    (group,) = layer_groups(models.load("meta-llama/Llama-2-7b-hf"))
    assert (group.token_mixing, group.count) == ("full attention", 32)
    assert group.parameters == 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096


@pytest.mark.parametrize("model_id", models.preset_ids())
def test_groups_tile_each_stack_and_hold_every_layer_parameter(model_id):
    spec = models.load(model_id)
    groups = layer_groups(spec)
    for stack in spec.stacks:
        own = [g for g in groups if g.stack == stack.role]
        assert sum(g.count for g in own) == stack.n_layers
        assert [g.first for g in own] == [sum(p.count for p in own[:i]) for i in range(len(own))]
    outside = sum(w.elements for s in spec.stacks for w in s.weights if not w.buffer)
    ends = sum(w.elements for w in (*spec.embeddings, *spec.lm_head))
    inside = sum(g.count * g.parameters for g in groups if not g.shares_weights)
    counted = count_parameters(spec)
    apart = counted.parts.get("mtp", 0) + counted.parts.get("draft", 0)
    assert inside + outside + ends == counted.total + apart
