"""Published maxima: restated as their pages describe the runs, and predicted within a factor of the measurement."""

import numpy as np
import pytest

from calc.layout import Layout
from calc.step import StepModel
from presets import accelerators, accuracy, maximum_load, measurements, models, profiles
from presets.trtllm_bench import BenchSettings, finetuned, guessed_requests

BAR = (0.9, 1.6)
MET = {"trt10": 131, "trt12": 51, "mlperf51": 16}  # of 145, 52 and 20; docs/accuracy.md names the others


def maxima():
    return [p for p in measurements.points() if p.metric == "most_tokens_per_s"]


def test_most_maxima_lie_between_nine_tenths_and_one_and_six_tenths():
    rows = [r for r in accuracy.comparisons() if r.quantity == "most tokens/s"]
    for group, met in MET.items():
        ratios = np.array([r.best / r.measured for r in rows if r.group == group])
        assert np.sum((ratios >= BAR[0]) & (ratios <= BAR[1])) >= met
        assert 0.9 <= np.exp(np.mean(np.log(ratios))) <= 1.35


@pytest.mark.parametrize(
    ("requests", "prompt", "output", "sequences", "tokens"),
    [  # by hand from the rule's rounding steps
        (40, 128, 128, 64, 2048),  # never below
        (100, 128, 128, 128, 2048),
        (1500, 1000, 1000, 1536, 3072),
        (2100, 1000, 1000, 2304, 4608),
        (8048.16, 128, 128, 4096, 8192),  # as the benchmark's documentation prints it
        (3000, 2048, 128, 3072, 32768),  # never above
    ],
)
def test_settings_are_rounded_as_the_benchmark_does(requests, prompt, output, sequences, tokens):
    found = finetuned(requests, input_tokens=prompt, output_tokens=output)
    assert (found.sequences, found.tokens) == (sequences, tokens)


def llama_8b_on_an_h200():
    gpu = accelerators.load("h200-sxm-141gb")
    return StepModel.of(
        models.load("meta-llama/Meta-Llama-3.1-8B"),
        gpu,
        Layout(),
        profiles.load(gpu, "tensorrt-llm"),
        quantization="fp8",
        kv_dtype="fp8",
    )


def test_the_benchmark_guesses_the_requests_that_its_documentation_prints():
    """Llama 3.1 8B in FP8, 128 tokens in and out: 8,048.16 requests (NVIDIA/TensorRT-LLM, docs/source/performance/perf-benchmarking.md)."""
    model = llama_8b_on_an_h200()
    assert guessed_requests(model, tokens=256.0) == pytest.approx(8048.16, rel=0.01)


def test_graphs_end_at_the_most_sequences_that_a_step_takes():
    """`_filter_cuda_graph_batch_sizes`: sizes above the largest batch are one, of that batch."""
    assert BenchSettings(sequences=640, tokens=2048).graph_sizes[-3:] == (384, 512, 640)
    assert BenchSettings(sequences=3328, tokens=2048).graph_sizes[-2:] == (1024, 2048)


def test_the_benchmark_cannot_feed_more_than_two_public_runs_show():
    """At 128 tokens in and out, requests/s of eight RTX PRO 6000 and of one B200 (points.csv), which differ in what they could do."""
    by_id = {p.id: p for p in maxima()}
    for name in ("trt10-106", "trt10-101"):
        rate = by_id[name].value / by_id[name].output_tokens
        assert rate == pytest.approx(maximum_load.BENCH_REQUESTS_PER_S, rel=0.01)
    assert (
        by_id["trt10-112"].value > 1.3 * by_id["trt10-106"].value
    )  # the eight make more tokens when answers are longer
    fastest = max(p.value / p.output_tokens for p in maxima() if p.group in maximum_load.NVIDIA_MAXIMA)
    assert fastest < 1.01 * maximum_load.BENCH_REQUESTS_PER_S
    slowest, most = maximum_load.BENCH_REQUESTS_RANGE
    assert most >= fastest
    assert by_id["trt10-102"].value / by_id["trt10-102"].output_tokens == pytest.approx(slowest, rel=0.01)


def test_a_run_that_its_benchmark_feeds_has_the_range_of_its_hosts():
    """The same short requests on a B200 and a GB200 (trt10-101, -102): predicted alike, measured 1.65 times apart, both in range."""
    rows = {r.id: r for r in accuracy.comparisons() if r.id in ("trt10-101", "trt10-102")}
    assert rows["trt10-101"].best == rows["trt10-102"].best
    assert all(r.inside for r in rows.values())


def test_every_nvidia_run_has_its_number_of_requests():
    for point in maxima():
        if point.group in maximum_load.NVIDIA_MAXIMA:
            assert (round(point.prompt_tokens), round(point.output_tokens)) in maximum_load.REQUESTS


def test_gpt_oss_has_an_8_bit_cache_on_blackwell_and_16_bits_on_hopper():
    found = {p.accelerator: p.kv_dtype for p in maxima() if "gpt-oss" in p.model}
    assert found["b200-sxm-180gb"] == found["gb200-gpu"] == "fp8"
    assert found["h100-sxm5-80gb"] == found["h200-sxm-141gb"] == "bf16"


def test_degrees_that_no_page_states_are_open():
    by_id = {p.id: p for p in maxima()}
    dense = by_id["trt10-044"]
    assert maximum_load.open_layouts(dense, models.load(dense.model)) == (Layout(tp=8),)
    experts = by_id["trt10-106"]
    assert Layout(tp=8, ep=8, attention_dp=8) in maximum_load.open_layouts(
        experts, models.load(experts.model)
    )
    summary = by_id["mlperf51-040"]
    found = maximum_load.open_layouts(summary, models.load(summary.model))
    assert Layout(tp=1, pp=2) in found
    assert all(layout.gpus_per_replica <= 8 for layout in found)


def test_cards_without_links_talk_as_on_nvidias_own_host():
    point = next(p for p in maxima() if p.id == "trt10-106")
    model = accuracy._step_model(point.model, point, point.version, model_id=point.model)
    hosted = maximum_load.on_its_host(point, model)
    usual = 1.4 * model.profile.number("collectives.factor")
    assert hosted.profile.calibration.get("communication_factor") == pytest.approx(1 / usual)
    assert hosted.factor == model.factor
    nvlink = next(p for p in maxima() if p.id == "trt10-044")
    same = accuracy._step_model(nvlink.model, nvlink, nvlink.version, model_id=nvlink.model)
    assert maximum_load.on_its_host(nvlink, same) is same
    assert maximum_load.most_sequences(point, model) > 0
