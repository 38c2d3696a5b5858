"""Result files of load-test tools, in the forms that the tools document; expected values are those of the files."""

import json

import pytest

from calc.endpoint.calibration import Quantity
from calc.errors import InputError
from presets.load_test_files import read_load_test

VLLM = {
    "date": "20261101-120000",
    "backend": "vllm",
    "model_id": "meta-llama/Llama-3.1-8B",
    "num_prompts": 200,
    "request_rate": "inf",
    "max_concurrency": 16,
    "duration": 40.0,
    "completed": 200,
    "total_input_tokens": 102_400,
    "total_output_tokens": 25_600,
    "output_throughput": 640.0,
    "median_ttft_ms": 61.5,
    "median_tpot_ms": 11.25,
}
GUIDELLM = {
    "metadata": {"version": 1},
    "benchmarks": [
        {
            "metrics": {
                "request_concurrency": {"successful": {"mean": 3.9}},
                "prompt_token_count": {"successful": {"mean": 512.0}},
                "output_token_count": {"successful": {"mean": 128.0}},
                "time_to_first_token_ms": {"successful": {"median": 40.0}},
                "inter_token_latency_ms": {"successful": {"median": 8.0}},
                "time_per_output_token_ms": {"successful": {"median": 8.25}},
                "output_tokens_per_second": {"successful": {"mean": 480.0}},
            }
        }
    ],
}
LLAMA_BENCH = [
    {
        "model_filename": "m.gguf",
        "n_prompt": 512,
        "n_gen": 0,
        "n_depth": 0,
        "avg_ns": 100_000_000,
        "avg_ts": 5120.0,
    },
    {
        "model_filename": "m.gguf",
        "n_prompt": 0,
        "n_gen": 128,
        "n_depth": 4096,
        "avg_ns": 1_280_000_000,
        "avg_ts": 100.0,
    },
    {
        "model_filename": "m.gguf",
        "n_prompt": 512,
        "n_gen": 128,
        "n_depth": 0,
        "avg_ns": 1_380_000_000,
        "avg_ts": 463.0,
    },
]
GENAI_PERF = {
    "time_to_first_token": {"unit": "ms", "avg": 52.0, "p50": 50.0},
    "inter_token_latency": {"unit": "ms", "avg": 9.5, "p50": 9.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 800.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "input_sequence_length": {"unit": "tokens", "avg": 1024.0},
    "input_config": {"perf_analyzer": {"stimulus": {"concurrency": 8}}},
}
AIPERF = GENAI_PERF | {"input_config": {"loadgen": {"concurrency": 8}}}


def points(content):
    found = read_load_test(content if isinstance(content, str) else json.dumps(content))
    return found, {o.quantity: o for o in found.observations}


def test_vllm_bench_serve():
    found, by = points(VLLM)
    assert found.model == "meta-llama/Llama-3.1-8B"
    assert by[Quantity.TTFT].value == pytest.approx(0.0615)
    assert by[Quantity.TPOT].value == pytest.approx(0.01125)
    assert by[Quantity.THROUGHPUT].value == 640.0
    assert {(o.input_tokens, o.output_tokens, o.concurrency) for o in found.observations} == {
        (512.0, 128.0, 16.0)
    }


def test_sglang_writes_one_object_a_line():
    lines = "\n".join(json.dumps(VLLM | {"max_concurrency": n, "backend": "sglang"}) for n in (1, 4, 16))
    found, _ = points(lines)
    assert [o.concurrency for o in found.observations if o.quantity is Quantity.TPOT] == [1.0, 4.0, 16.0]


def test_guidellms_tpot_is_not_ours():
    _, by = points(GUIDELLM)
    assert by[Quantity.TPOT].value == pytest.approx(
        0.008
    )  # its inter-token latency; its TPOT has the first token in it
    assert by[Quantity.TTFT].value == pytest.approx(0.040)
    assert by[Quantity.TPOT].concurrency == 3.9


def test_llama_bench_gives_prompts_and_generations_apart():
    found, by = points(LLAMA_BENCH)
    assert len(found.observations) == 2  # the combined row tells neither
    assert by[Quantity.TTFT].value == pytest.approx(512 / 5120.0)
    assert by[Quantity.TPOT].value == pytest.approx(1 / 100.0)
    assert by[Quantity.TPOT].input_tokens == 4096


@pytest.mark.parametrize("content", [GENAI_PERF, AIPERF])
def test_aiperf_and_its_predecessor(content):
    _, by = points(content)
    assert by[Quantity.TTFT].value == pytest.approx(0.050)
    assert by[Quantity.TPOT].value == pytest.approx(0.009)
    assert by[Quantity.THROUGHPUT].value == 800.0
    assert by[Quantity.TTFT].concurrency == 8.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "{}",
        '{"a": 1}',
        '{"median_ttft_ms": 5}',
        '{"benchmarks": []}',
        "[" * 100_000,
        "1",
        "null",
    ],
)
def test_anything_else_is_refused_in_words(text):
    with pytest.raises(InputError):
        read_load_test(text)
