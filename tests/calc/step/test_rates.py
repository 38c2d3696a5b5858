"""What a share of a peak comes to: halved 32-bit sums, prompts in 8 bits, and who speaks for a device."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from calc.layout import Layout
from calc.operators import KINDS, ForwardPass, Kind
from calc.profile_numbers import ENGINE_DEFAULTS
from calc.quantization import FORMATS
from calc.step import StepModel
from calc.step.rates import compute_class, rate_table, reached_flop_per_s
from presets import accelerators, models, profiles

LLAMA = models.load("meta-llama/Meta-Llama-3.1-8B")


def reached(gpu_id, name="compute.16bit", rate="bf16"):
    device = accelerators.load(gpu_id)
    return reached_flop_per_s(name, device, profiles.load(device, "vllm"), rate)


def test_a_card_of_the_whole_rate_reaches_its_share():
    profile = profiles.load("l40s", "vllm")
    assert reached("l40s") == profile.number("compute.16bit") * 362e12


@pytest.mark.parametrize("gpu_id", ["rtx-4090", "rtx-3090", "rtx-5090", "rtx-4070"])
def test_halved_sums_are_reached_almost_whole_and_never_exceeded(gpu_id):
    halved = accelerators.load(gpu_id).rates["bf16"].flop_per_s
    assert 0.85 * halved < reached(gpu_id) < halved


def test_a_long_prompt_on_a_5090_takes_what_was_measured():
    """AccelMark, vLLM 0.19, Llama 3.1 8B: 3.48 s for 28,600 tokens, from the RTX PRO 6000's share of the whole rate."""
    device = accelerators.load("rtx-5090")
    profile = profiles.load(device, "vllm", engine_version="0.19.1")
    share = profiles.load("rtx-pro-6000-blackwell-server", "vllm").device.numbers["compute.16bit"]
    numbers = {**profile.device.numbers, "compute.16bit": share}
    profile = replace(profile, device=replace(profile.device, numbers=numbers))
    model = StepModel.of(LLAMA, device, Layout(), profile)
    assert float(model.step(ForwardPass.prefill(28_600.0)).total.best[0]) == pytest.approx(3.48, rel=0.1)


def test_what_a_probe_measured_on_the_card_itself_is_not_converted():
    device = accelerators.load("rtx-4090")
    fitted = profiles.load(device, "vllm")
    measured = replace(fitted, device=fitted.device.measured({"compute.16bit": 0.7}, source="a probe"))
    assert reached_flop_per_s("compute.16bit", device, measured, "bf16") == pytest.approx(0.7 * 165.2e12)


def test_engines_that_prefill_in_8_bits_gain_on_long_prompts_only():
    """TensorRT-LLM over an fp8 cache (kernel tables of Hopper and Blackwell); vLLM on Hopper computes prompts in 16 bits."""

    def attention_s(engine, kv_dtype, tokens):
        gpu_id = "h100-sxm5-80gb"
        model = StepModel.of(
            LLAMA, accelerators.load(gpu_id), Layout(), profiles.load(gpu_id, engine), kv_dtype=kv_dtype
        )
        rows = model.step(ForwardPass.prefill(float(tokens))).rows()
        return sum(row["s"] for row in rows if row["name"] == "prefill attention")

    for tokens, low, high in ((32_768, 1.3, 1.6), (512, 1.0, 1.25)):
        gain = attention_s("tensorrt-llm", "bf16", tokens) / attention_s("tensorrt-llm", "fp8", tokens)
        assert low < gain < high
    assert attention_s("vllm", "fp8", 32_768) == pytest.approx(attention_s("vllm", "bf16", 32_768), rel=0.02)


@pytest.mark.parametrize("name", sorted(ENGINE_DEFAULTS))
def test_a_profile_from_before_a_number_existed_is_still_read(name):
    fitted = profiles.load("h100-sxm5-80gb", "tensorrt-llm")
    older = {known: n for known, n in fitted.engine.numbers.items() if known != name}
    charged_whole = ("experts.passes", "quantising.share_8bit")
    meant = 1 if name in charged_whole else 0  # the others have no number of their own
    assert replace(fitted, engine=replace(fitted.engine, numbers=older)).number(name) == meant


def test_an_8_bit_cache_without_numbers_of_its_own_is_read_like_a_16_bit_one():
    fitted = profiles.load("h100-sxm5-80gb", "sglang")
    older = {name: n for name, n in fitted.engine.numbers.items() if name not in ENGINE_DEFAULTS}
    device = accelerators.load("h100-sxm5-80gb")
    table = rate_table(("bf16", "fp8"), device, replace(fitted, engine=replace(fitted.engine, numbers=older)))
    row = KINDS.index(Kind.ATTENTION)
    assert table.bytes_per_s[row, 0] == table.bytes_per_s[row, 1]
    assert table.sequence_s[row, 0] == table.sequence_s[row, 1]


@pytest.mark.parametrize(
    ("engine", "low", "high"), [("tensorrt-llm", 1.9, 2.2), ("vllm", 1.55, 1.9), ("sglang", 1.2, 1.4)]
)
def test_an_8_bit_cache_gains_on_hopper_what_each_engines_kernels_gain(engine, low, high):
    """Public kernel tables of H100 and H200: 2.1, 1.6 to 1.9 and 1.2 to 1.4 times; on Blackwell nearly twice with all three."""

    def attention_s(gpu_id, kv_dtype):
        profile = profiles.load(gpu_id, engine)
        model = StepModel.of(LLAMA, accelerators.load(gpu_id), Layout(), profile, kv_dtype=kv_dtype)
        rows = model.step(ForwardPass.decode(64.0, 8192.0)).rows()
        return sum(row["s"] for row in rows if row["name"] == "decode attention")

    assert low < attention_s("h100-sxm5-80gb", "bf16") / attention_s("h100-sxm5-80gb", "fp8") < high
    assert 1.75 < attention_s("b200-sxm-180gb", "bf16") / attention_s("b200-sxm-180gb", "fp8") < 2.1


def test_llama_cpp_multiplies_mxfp4_as_its_other_formats():
    """gpt-oss-120b on a DGX Spark: 1,397 tokens/s over 2,048, in micro-batches of 512 (ggml-org/llama.cpp, pull request 17906,
    before it brought FP4 products of its own). Serving engines multiply in MXFP8 there.
    """
    device = accelerators.load("dgx-spark-gb10")
    spec = models.load("openai/gpt-oss-120b")
    local, served = (
        StepModel.of(spec, device, Layout(), profiles.load(device, engine))
        for engine in ("llama.cpp", "vllm")
    )
    chunks = [ForwardPass.prefill(512.0, prefix=done) for done in (0.0, 512.0, 1024.0, 1536.0)]
    took = sum(float(local.step(chunk).total.best[0]) for chunk in chunks)
    assert took == pytest.approx(2048 / 1397, rel=0.15)
    assert compute_class(FORMATS["mxfp4"], device, served.profile)[0] == "compute.fp8"
    assert compute_class(FORMATS["mxfp4"], device, local.profile)[0] == "compute.weight_only"


@pytest.mark.parametrize(
    ("model_id", "tp", "heads"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", 1, 8),
        ("meta-llama/Meta-Llama-3.1-8B", 8, 1),
        ("Qwen/Qwen3-30B-A3B", 1, 4),
        ("meta-llama/Llama-2-7b-hf", 1, 8),  # 32: more than were measured
    ],
)
def test_what_a_sequence_costs_decode_attention_goes_with_its_key_value_heads(model_id, tp, heads):
    """Thread blocks are one for each sequence and key-value head; the kernel tables have 32 query heads on 8."""
    gpu_id = "h100-sxm5-80gb"
    profile = profiles.load(gpu_id, "vllm")
    model = StepModel.of(models.load(model_id), accelerators.load(gpu_id), Layout(tp=tp), profile)
    found = model.reached_rates.sequence_s[model.reached_rates.sequence_rows]
    assert found == pytest.approx(profile.number("attention.sequence_s") * heads / 8)


EXPERT_SHAPES = {
    "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
    "Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B",
    "Mixtral-8x7B": "mistralai/Mixtral-8x7B-v0.1",
    "DeepSeek-V3": "deepseek-ai/DeepSeek-V3",
}


@pytest.mark.reference
def test_expert_layers_of_a_card_with_a_large_cache_take_what_its_kernel_table_has(reference):
    """RTX PRO 6000, TensorRT-LLM in NVFP4, steps of 4,096 tokens and more: 1.1 to 1.6 times that with every pass charged to memory."""
    with (reference / "kernels/moe.csv").open() as stream:
        rows = [
            row
            for row in csv.DictReader(stream)
            if (row["system"], row["engine"], row["moe_dtype"]) == ("rtx_pro_6000_server", "trtllm", "nvfp4")
            and row["distribution"] == "balanced"
            and int(row["num_tokens"]) >= 4096
        ]
    gpu_id = "rtx-pro-6000-blackwell-server"
    profile = profiles.load(gpu_id, "tensorrt-llm")
    ratios = []
    for row in rows:
        spec = models.load(EXPERT_SHAPES[row["model_shape"]])
        model = StepModel.of(spec, accelerators.load(gpu_id), Layout(), profile, quantization="nvfp4")
        passed = model.expected(ForwardPass.prefill(float(row["num_tokens"])), eager=True)
        at = next(i for i, op in enumerate(passed.table.rows(0)) if op["name"] == "experts")
        layer_s = passed.operators[at, 0] / np.broadcast_to(passed.table.count, passed.operators.shape)[at, 0]
        ratios.append(1e6 * layer_s / float(row["latency_us"]))
    assert len(ratios) == 12
    assert np.mean(np.abs(np.log(ratios))) < 0.12
