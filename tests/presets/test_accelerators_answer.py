"""Every accelerator answers a plan for Llama 3 8B, or says by its name what is missing."""

import pytest

from calc.answer import answer
from calc.errors import MissingSpec
from calc.scenario import Scenario
from presets import accelerators
from presets.resolve import resolve

MODEL = "meta-llama/Meta-Llama-3.1-8B"
NEEDS_MEMORY = {"epyc-7763", "epyc-9654", "epyc-9755", "xeon-8480plus", "xeon-8592plus", "xeon-6980p"}


def plan(**fields):
    return answer(resolve(Scenario(model=MODEL, **fields)))


@pytest.mark.parametrize("part_id", accelerators.all_ids())
def test_a_plan_for_an_8b_model_is_answered_or_says_what_is_missing(part_id):
    if part_id in NEEDS_MEMORY:
        with pytest.raises(MissingSpec) as caught:
            plan(gpu=part_id)
        assert accelerators.load(part_id).name in caught.value.message
        assert "device-memory" in caught.value.next_step
        result = plan(gpu=part_id, device_memory_bytes=512e9)
    else:
        result = plan(gpu=part_id)
    assert result.gpus >= 1
    if result.verdict.fits:
        assert 0 < result.ttft_s.best < 60
        assert 0 < result.tpot_s.best < 1
    else:
        assert result.verdict.reason


def test_which_fit_is_a_matter_of_memory():
    # 16.06 GB of bf16 weights: an 80 GB card holds them, a chip with 230 MB of SRAM does not
    assert plan(gpu="a100-sxm4-80gb").verdict.fits
    assert not plan(gpu="groq-lpu-v1").verdict.fits


def test_a_price_comes_with_its_cloud_and_date_and_the_users_own_goes_first():
    offer = resolve(Scenario(model=MODEL, gpu="h100-sxm5-80gb")).offer
    assert offer.usd_per_gpu_hour > 0
    assert "on demand, 2026-" in offer.price_note
    own = resolve(Scenario(model=MODEL, gpu="h100-sxm5-80gb", usd_per_gpu_hour=1.5)).offer
    assert (own.usd_per_gpu_hour, own.price_note) == (1.5, "your own price")
    unpriced = plan(gpu="mi355x")
    assert unpriced.cost.usd_per_hour is None
