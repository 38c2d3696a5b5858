"""Twice the GPUs in one replica, and the bound beside the estimate: what never takes more replicas, over drawn questions."""

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from calc.scenario import Behind, Fidelity, Scenario, Traffic
from calc.sized import answer_on
from presets.resolve import resolve

MODELS = (
    "meta-llama/Meta-Llama-3.1-8B",
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3-30B-A3B",
    "google/gemma-3-27b-it",
    "openai/gpt-oss-20b",
)
FREE_LINK_BYTES_PER_S = 1e18
NOTHING_COMES_BACK = Scenario(
    model="meta-llama/Meta-Llama-3.1-8B",
    gpu="h200-sxm-141gb",
    engine="tensorrt-llm",
    tp=8,
    traffic=Traffic.USERS,
    users=2398,
    input_tokens=624.0,
    output_tokens=327.0,
    kv_dtype="fp8",
    max_batched_tokens=512,
    reuse_after_s=30.0,
    tpot_s=0.02,
    fidelity=Fidelity.ROOFLINE,
)
"""Most requests per second come with fewer users than may be served; these are promised times, and no text is forgotten."""
USERS_WHOSE_TEXT_COMES_BACK = Scenario(
    model="meta-llama/Meta-Llama-3.1-8B",
    gpu="mi210",
    tp=2,
    traffic=Traffic.USERS,
    users=213,
    input_tokens=682.0,
    output_tokens=14.0,
    prefix_share=0.3,
    reuse_after_s=30.0,
    draft_tokens=3,
    max_batched_tokens=512,
    ttft_s=5.0,
    tpot_s=None,
    fidelity=Fidelity.ROOFLINE,
)


@st.composite
def questions(draw, gpus=("h100-sxm5-80gb", "a100-sxm4-80gb", "l40s", "mi300x")):
    """One question with its layout: open or closed traffic, with and without text that comes back.

    Users who wait are given no target between tokens: a sooner first token lets them ask more often, and prompts then come
    between the tokens of answers of two or three (their whole request is shorter all the same).
    """
    share = draw(st.sampled_from((0.0, 0.5)))
    traffic = draw(st.sampled_from(list(Traffic)))
    return Scenario(
        model=draw(st.sampled_from(MODELS)),
        gpu=draw(st.sampled_from(gpus)),
        engine=draw(st.sampled_from(("vllm", "sglang", "llama.cpp"))),
        tp=draw(st.sampled_from((1, 2, 4))),
        traffic=traffic,
        rate_per_s=draw(st.floats(0.1, 300.0)),
        users=draw(st.integers(1, 3000)),
        input_tokens=float(draw(st.integers(16, 8000))),
        output_tokens=float(draw(st.integers(1, 2000))),
        prefix_share=share,
        reuse_after_s=draw(st.sampled_from((None, 30.0))),
        kv_offload=draw(st.sampled_from((Behind.NONE, Behind.HOST))),
        max_batched_tokens=draw(st.sampled_from((None, 512))),
        tpot_s=draw(st.sampled_from((None, 0.05))) if traffic is Traffic.RATE else None,
        fidelity=Fidelity.ROOFLINE,
    )


def replicas(inputs):
    """Replicas of the layout that was asked, or None where it serves nobody."""
    found = answer_on(inputs, inputs.scenario.layout)
    return found.fleet.replicas if found.verdict.fits and found.fleet is not None else None


@given(questions(gpus=("h100-sxm5-80gb", "a100-sxm4-80gb")))
@settings(max_examples=25, deadline=None)
def test_twice_the_gpus_of_a_replica_take_no_more_replicas_where_links_cost_nothing(scenario):
    """Over real links they can: between hosts, over PCIe, or over one of a mesh's links, messages outweigh what is shared."""
    inputs = resolve(scenario)
    free = replace(inputs.offer.accelerator, link_bytes_per_s=FREE_LINK_BYTES_PER_S)
    inputs = replace(inputs, offer=replace(inputs.offer, accelerator=free))
    once = replicas(inputs)
    if once is not None:
        twice = replicas(replace(inputs, scenario=replace(scenario, tp=2 * scenario.tp)))
        assert twice is not None
        assert twice <= once


@given(questions())
@example(NOTHING_COMES_BACK)
@example(USERS_WHOSE_TEXT_COMES_BACK)
@settings(max_examples=25, deadline=None)
def test_the_bound_never_takes_more_replicas_than_the_estimate(scenario):
    expected = replicas(resolve(replace(scenario, fidelity=Fidelity.EXPECTED)))
    if expected is not None:
        bound = replicas(resolve(scenario))
        assert bound is not None
        assert bound <= expected
