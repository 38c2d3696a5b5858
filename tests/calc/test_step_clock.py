"""The simulator's clock loses at most 1% of the step model, for dense, sparse, windowed and expert models."""

import pytest

from calc.layout import Layout
from calc.step import Fidelity, StepModel
from calc.step_clock import clock_error, step_clock
from presets import accelerators, models, profiles

TRAFFIC = ((800, 700), (2000, 1500), (8000, 7000))  # usual context and prompt


MODELS = (
    "meta-llama/Meta-Llama-3.1-8B",
    "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V3",
    "nvidia/DeepSeek-V3.2-NVFP4",
    "google/gemma-3-27b-it",
    "openai/gpt-oss-120b",
    "mistralai/Mistral-7B-v0.1",
    "microsoft/Phi-3-mini-4k-instruct",
)


def largest_error(model_id, fidelity, tp=1, drafts=0):
    card = accelerators.load("h100-sxm5-80gb")
    profile = profiles.load(card, "vllm", model_id=model_id)
    model = StepModel.of(models.load(model_id), card, Layout(tp=tp), profile, fidelity=fidelity)
    errors = []
    for context, prompt in TRAFFIC:
        clock = step_clock(model, context_tokens=context, prompt_tokens=prompt, drafts=drafts)
        errors.append(clock_error(clock, model, context_tokens=context, prompt_tokens=prompt, drafts=drafts))
    return max(errors)


@pytest.mark.parametrize("model_id", MODELS)
def test_the_clock_keeps_within_one_percent(model_id):
    assert largest_error(model_id, Fidelity.EXPECTED) < 0.01


@pytest.mark.parametrize("model_id", MODELS[1:4])
def test_passes_that_verify_drafts_are_as_near(model_id):
    errors = {drafts: largest_error(model_id, Fidelity.EXPECTED, drafts=drafts) for drafts in (1, 4, 8)}
    assert max(errors.values()) < 0.01


@pytest.mark.parametrize("model_id", MODELS[:1] + MODELS[-1:])
def test_the_hard_corners_of_the_roofline_are_cut_by_little(model_id):
    """Straight lines between knots pass inside the corner where the bound changes from bytes to FLOP."""
    assert largest_error(model_id, Fidelity.ROOFLINE, tp=2) < 0.03


def test_windows_and_selections_are_found():
    card = accelerators.load("h100-sxm5-80gb")
    profile = profiles.load(card, "vllm")
    found = {}
    for model_id in ("openai/gpt-oss-120b", "nvidia/DeepSeek-V3.2-NVFP4", "Qwen/Qwen3-8B"):
        model = StepModel.of(models.load(model_id), card, Layout(), profile)
        found[model_id] = step_clock(model, context_tokens=4000, prompt_tokens=3000).window
    # sliding_window 128; index_topk 2048; none
    assert list(found.values()) == [128, 2048, 0]
