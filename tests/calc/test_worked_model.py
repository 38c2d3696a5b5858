"""A model's own numbers come out of their formulas again: cache of a token by kind of layer, weights, a conversation."""

import pytest

from calc.formulas import FORMULAS
from calc.memory.kv import compressed, kv_bytes_per_token, sequence_bytes
from calc.parameters import count_parameters
from calc.quantization import stored_bytes
from calc.worked.model import worked_conversation, worked_token, worked_weights
from presets import models

MODELS = {one: models.load(one) for one in models.preset_ids() if one not in models.TEXTBOOK_MODELS}


def again(line):
    return float(FORMULAS[line.formula].value(line.inputs))


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8", "q8_0"])
def test_the_lines_of_a_token_add_up_to_its_cache(kv_dtype):
    compared = [spec for spec in MODELS.values() if not compressed(spec, kv_dtype)]
    assert len(compared) > 30
    for spec in compared:
        lines = worked_token(spec, kv_dtype)
        assert sum(line.result for line in lines) == kv_bytes_per_token(spec, kv_dtype), spec.id
        for line in lines:
            assert again(line) == pytest.approx(line.result, rel=1e-12)


def test_deepseek_v3_keeps_the_published_latent():
    """70.272 KB per token: Zhao et al. 2025 (arXiv 2505.09343), table 1."""
    (line,) = worked_token(MODELS["deepseek-ai/DeepSeek-V3"], "bf16")
    assert (line.formula, line.result) == ("cached_bytes_per_token", 70_272)


def test_weights_and_a_conversation_come_out_again():
    for spec in MODELS.values():
        stored = stored_bytes(spec).stored
        line = worked_weights(parameters=count_parameters(spec).total, stored_bytes=stored)
        assert again(line) == pytest.approx(stored, rel=1e-12)
        for whole in worked_conversation(spec, "bf16", 4096):
            assert again(whole) == sequence_bytes(spec, 4096, "bf16")
