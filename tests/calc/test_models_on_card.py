"""Several models on one card: what fits by plain arithmetic of weights fits here, and the largest comes first."""

from dataclasses import replace

from calc.answer import answer
from calc.models_on_card import models_on_card
from calc.scenario import Scenario
from presets.resolve import resolve

ONE_USER = Scenario(
    gpu="rtx-4090",
    traffic="users",
    users=1,
    input_tokens=3000,
    output_tokens=1000,
    tpot_s=None,
    tp=1,
    max_model_len=4000,
)
MODELS = ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "Qwen/Qwen3-32B", "meta-llama/Llama-3.3-70B-Instruct")


def ask(model, quantization):
    scenario = replace(ONE_USER, model=model, quantization=quantization)
    return answer(replace(resolve(scenario), catalogue=()))


def test_the_largest_that_fits_a_24_gb_card():
    """16.4 GB of 8B weights fit in 16 bit; 32.8 billion do not even in 8 bit but do in 4; 70.6 billion fit in none."""
    ranked = models_on_card(MODELS, ask)
    works = {c.model: c.quantization for c in ranked if c.answer is not None}
    assert works == {"Qwen/Qwen3-32B": "int4-g128", "Qwen/Qwen3-8B": "auto", "Qwen/Qwen3-0.6B": "auto"}
    assert [c.model for c in ranked] == [MODELS[2], MODELS[1], MODELS[0], MODELS[3]]
    assert "int4-g128: " in ranked[-1].why


def test_no_user_is_served_faster_than_the_memory_reads_the_weights():
    """1,008 GB/s over the bytes of the weights bounds the tokens per second of one user."""
    for candidate in models_on_card(MODELS[:2], ask):
        weights = candidate.answer.memory.weight_bytes_per_gpu
        embedding = candidate.answer.inputs.spec.embeddings[0].elements * 2
        assert candidate.user_tokens_per_s < 1008e9 / (weights - embedding)
