"""Seconds of operators: the soft maximum, its limits, and the shape of a pass under a profile."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.layout import Layout
from calc.operators import ForwardPass
from calc.step import StepModel
from calc.step.seconds import soft_maximum
from presets import accelerators, models, profiles

sizes = st.floats(1e-9, 1e3)


@given(sizes, sizes, st.sampled_from([2.0, 3.0, 6.0]))
def test_the_soft_maximum_lies_between_the_maximum_and_the_sum(a, b, exponent):
    value = float(soft_maximum(np.array(a), np.array(b), exponent))
    assert max(a, b) <= value * (1 + 1e-12)
    assert value <= (a + b) * (1 + 1e-12)


def test_an_infinite_exponent_is_the_hard_corner():
    assert float(soft_maximum(np.array(2.0), np.array(3.0), np.inf)) == 3.0
    assert float(soft_maximum(np.array(2.0), np.array(2.0), 3.0)) == pytest.approx(2 * 2 ** (1 / 3))


def model(name, gpu, **layout):
    return StepModel.of(
        models.load(name), accelerators.load(gpu), Layout(**layout), profiles.load(gpu, "vllm")
    )


CASES = [
    ("meta-llama/Meta-Llama-3.1-8B", "h100-sxm5-80gb", {}),
    ("meta-llama/Meta-Llama-3.1-70B", "a100-sxm4-80gb", {"tp": 4}),
    ("deepseek-ai/DeepSeek-V3", "b200-sxm-180gb", {"tp": 8, "ep": 8}),
    ("openai/gpt-oss-120b", "h200-sxm-141gb", {"tp": 2}),
    ("tiiuae/falcon-mamba-7b", "l40s", {}),
]


@pytest.mark.parametrize(("name", "gpu", "layout"), CASES)
def test_a_step_never_gets_faster_with_more_sequences_or_longer_contexts(name, gpu, layout):
    asked = model(name, gpu, **layout)
    axis = np.arange(1.0, 200.0)
    for steps in (
        asked.step(ForwardPass.decode(axis, 2000.0)),
        asked.step(ForwardPass.decode(8.0, axis * 100)),
        asked.step(ForwardPass.prefill(axis * 50)),
    ):
        assert np.all(np.diff(steps.total.best) >= -1e-9 * steps.total.best[1:])


@pytest.mark.parametrize(("name", "gpu", "layout"), CASES)
def test_terms_add_up_to_the_best_estimate(name, gpu, layout):
    steps = model(name, gpu, **layout).step(ForwardPass.decode(np.array([1.0, 64.0, 512.0]), 3000.0))
    assert sum(steps.terms.values()) == pytest.approx(steps.operators.total)
    assert set(steps.terms) == {"weights", "kv", "activations", "compute", "communication", "overhead"}


@settings(max_examples=40, deadline=None)
@given(
    case=st.sampled_from(CASES),
    batch=st.floats(1, 2000),
    context=st.floats(1, 200_000),
    prompt=st.floats(0, 20_000),
    engine=st.sampled_from(["vllm", "sglang", "tensorrt-llm", "llama.cpp"]),
)
def test_the_roofline_is_never_slower_than_the_low_end_of_the_expected(case, batch, context, prompt, engine):
    name, gpu, layout = case
    profile = profiles.load(gpu, engine)
    spec, device = models.load(name), accelerators.load(gpu)
    step = ForwardPass.mixed(batch, context, prompt_tokens=prompt)
    expected = StepModel.of(spec, device, Layout(**layout), profile).step(step)
    bound = StepModel.of(spec, device, Layout(**layout), profile, fidelity="roofline").step(step)
    assert float(bound.total.best[0]) <= float(expected.total.low[0]) * (1 + 1e-9)
    assert float(bound.total.best[0]) <= float(expected.operators.total[0]) * (1 + 1e-9)


def test_small_batches_are_memory_bound_and_long_prompts_compute_bound():
    asked = model("meta-llama/Meta-Llama-3.1-8B", "h100-sxm5-80gb")
    assert asked.step(ForwardPass.decode(1.0, 1000.0)).bound[0] == "memory"
    assert asked.step(ForwardPass.prefill(8192.0)).bound[0] == "compute"


def test_weight_only_formats_read_less_but_do_not_compute_faster():
    spec, device = models.load("meta-llama/Meta-Llama-3.1-8B"), accelerators.load("a100-sxm4-80gb")
    profile = profiles.load("a100-sxm4-80gb", "vllm")
    plain = StepModel.of(spec, device, Layout(), profile)
    packed = StepModel.of(spec, device, Layout(), profile, quantization="awq")
    one, prompt = ForwardPass.decode(1.0, 500.0), ForwardPass.prefill(8192.0)
    assert packed.step(one).total.best[0] < 0.6 * plain.step(one).total.best[0]
    assert packed.step(prompt).total.best[0] >= plain.step(prompt).total.best[0]


def test_an_engine_whose_gate_and_attention_write_8_bits_quantises_what_norms_feed_alone():
    """Of the inputs of a layer of Llama 3.1 8B norms feed 2 x 4,096, attention 4,096, the gate 14,336."""
    spec, device = models.load("meta-llama/Meta-Llama-3.1-8B"), accelerators.load("h100-sxm5-80gb")

    def quantising_s(engine):
        profile = profiles.load(device, engine)
        asked = StepModel.of(spec, device, Layout(), profile, quantization="fp8")
        seconds = asked.expected(ForwardPass.prefill(4096.0), eager=True)
        products = seconds.table.quantised_bytes > 0
        assert products.sum() == 4
        return float((seconds.table.count * seconds.activation_s)[products].sum())

    share = 2 * 4096 / (2 * 4096 + 4096 + 14336)
    assert quantising_s("tensorrt-llm") / quantising_s("vllm") == pytest.approx(share, rel=0.05)


def test_attention_ranks_are_further_from_the_data_than_the_same_gpus_together():
    """No clean measurement has attention ranks."""

    def width(**layout):
        total = (
            model("deepseek-ai/DeepSeek-V3", "b200-sxm-180gb", **layout)
            .step(ForwardPass.decode(32.0, 2000.0))
            .total
        )
        return float(total.high[0] / total.best[0])

    related = profiles.load("b200-sxm-180gb", "vllm").spread["related"]
    ranks = width(tp=8, ep=8, attention_dp=8)
    assert ranks == pytest.approx(related * width(tp=8, ep=8))
    assert ranks > 1.2 * width(tp=8)


def test_fp8_computes_faster_only_where_the_device_does():
    prompt = ForwardPass.prefill(8192.0)
    spec = models.load("meta-llama/Meta-Llama-3.1-8B")
    for gpu, gains in (("h100-sxm5-80gb", True), ("a100-sxm4-80gb", False)):
        profile, device = profiles.load(gpu, "vllm"), accelerators.load(gpu)
        plain = StepModel.of(spec, device, Layout(), profile).step(prompt).total.best[0]
        fp8 = StepModel.of(spec, device, Layout(), profile, quantization="fp8").step(prompt).total.best[0]
        assert bool(fp8 < 0.9 * plain) is gains
