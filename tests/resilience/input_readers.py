"""Every way in for text and files of others, in one table: valid samples, and a use as the product makes of them.

A `use` reads the bytes, does with the result what pages and commands do, and returns the numbers that a person would
see. It may raise what `errors` names and nothing else; what it returns must be finite and of a believable sign.
"""

import gzip
import io
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import numpy as np
from published_run import a100, case, timing
from safetensors.numpy import save

from calc.answer import answer
from calc.custom_accelerator import accelerator_as_json, accelerator_from_json, accelerator_from_text
from calc.endpoint.calibration import calibrate, observations_of
from calc.endpoint.html import report_html
from calc.endpoint.plan import TestPlan
from calc.endpoint.report import report_of
from calc.endpoint.run import run_from_text
from calc.endpoint.samples import Sample
from calc.endpoint.tables import level_rows, prompt_rows, report_json
from calc.errors import RidgebeamError
from calc.fleet_table import fleet_rows, stocks_of
from calc.layout import Layout
from calc.memory import kv
from calc.memory.engines import EngineSettings, ledger
from calc.memory.log_comparison import compare, settings_from_log
from calc.memory.logs import read_log
from calc.operators import ForwardPass
from calc.parameters import count_parameters
from calc.quantization import stored_bytes
from calc.scenario import Scenario, from_json, from_query, to_json, to_query
from calc.step import StepModel
from presets import accelerators, hub, models, profiles
from presets.checkpoint import parse_header, shards_of
from presets.fleet_file import EXAMPLE, read_fleet_text
from presets.gguf_file import read_local_gguf
from presets.hub_cache import FORMAT, PUBLIC, HubCache
from presets.hub_client import json_object
from presets.hub_faults import Asked
from presets.load_test_files import read_load_test
from presets.model_ids import parse_reference
from presets.prices import read_snapshot
from presets.profiles.calibrated import with_calibration
from presets.resolve import resolve
from presets.sources import read_config_text
from presets.tensor_files import matrices, read_matrix, tensor_list
from presets.traces import uploaded_trace
from probes import events, measured, store
from probes.endpoint.dialects import Api, read_line
from probes.endpoint.discovery import means_between, parse_metrics

GPU = "a100-sxm4-80gb"
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 8,
    "num_key_value_heads": 4, "num_hidden_layers": 3, "vocab_size": 1000, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}  # fmt: skip
TRACES = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
    "2023-11-16 18:17:04.0319600,3180,8\n2024-05-10 00:00:01+00:00,2399,6\n",
    "burstgpt": "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,1,2.5,ChatGPT,472,18,490,Conversation log\n45,2,0.0,ChatGPT,1087,0,1087,API log\n118,3,1.0,GPT-4,417,276,693,API log\n",
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n",
    "own": "arrival_s,input_tokens,output_tokens,priority,output_limit,stream\n0,10,3,1,64,1\n0.25,20,4,0,64,1\n",
    "mooncake": '{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]}\n'
    '{"timestamp": 3000, "input_length": 1500, "output_length": 6, "hash_ids": [0, 1, 2]}\n',
    "bailian": '{"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 40, "output_length": 9, "hash_ids": [5, 6]}\n'
    '{"chat_id": 8, "parent_chat_id": 7, "timestamp": 2.0, "input_length": 50, "output_length": 9, "hash_ids": [5, 8]}\n',
    "vllm": '{"backend": "vllm", "input_lens": [10, 20], "output_lens": [3, 4], "start_times": [100.5, 101.0]}',
    "own lines": '{"arrival_s": 1, "input_tokens": 90, "output_tokens": 2, "priority": 2, "prefix_ids": [4, 5]}\n'
    '{"arrival_s": 2, "input_tokens": 9, "output_tokens": 20, "priority": 1, "prefix_ids": [4]}\n',
}
VLLM_LOG = """vLLM API server version 0.11.0
Model loading took 14.0800 GiB and 6.03 seconds
Available KV cache memory: 55.15 GiB
GPU KV cache size: 451,744 tokens
Maximum concurrency for 4,096 tokens per request: 110.29x
Graph capturing finished in 5 secs, took 0.67 GiB
Free memory on device (78.66/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB). Actual usage is 14.08 GiB for weight, 1.97 GiB for peak activation, 0.07 GiB for non-torch memory, and 0.67 GiB for CUDAGraph memory.
"""
SGLANG_LOG = """Load weight end. elapsed=9.53 s, type=Qwen2, dtype=torch.bfloat16, avail mem=8.37 GB, mem usage=14.39 GB.
KV Cache is allocated. dtype: torch.bfloat16, #tokens: 105531, K size: 2.82 GB, V size: 2.82 GB
max_total_num_tokens=105531, chunked_prefill_size=2048, max_prefill_tokens=16384, context_len=32768
"""
TENSORRT_LLM_LOG = """[TensorRT-LLM][INFO] TensorRT-LLM version: 0.17.0
[TensorRT-LLM][INFO] Number of tokens per block: 32.
[MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008).
"""
LLAMA_CPP_LOG = """build: 6100 (abcdef0) with gcc
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
llama_context: n_ctx         = 8192
llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs)
llama_context:      CUDA0 compute buffer size =   560.00 MiB
"""
LOGS = (VLLM_LOG, SGLANG_LOG, TENSORRT_LLM_LOG, LLAMA_CPP_LOG)
LOAD_TESTS = (
    {
        "backend": "vllm", "model_id": "m", "max_concurrency": 16, "completed": 200, "total_input_tokens": 102_400,
        "total_output_tokens": 25_600, "output_throughput": 640.0, "median_ttft_ms": 61.5, "median_tpot_ms": 11.25,
    },
    {
        "benchmarks": [
            {
                "metrics": {
                    "request_concurrency": {"successful": {"mean": 3.9}},
                    "prompt_token_count": {"successful": {"mean": 512.0}},
                    "output_token_count": {"successful": {"mean": 128.0}},
                    "time_to_first_token_ms": {"successful": {"median": 40.0}},
                    "inter_token_latency_ms": {"successful": {"median": 8.0}},
                    "output_tokens_per_second": {"successful": {"mean": 480.0}},
                }
            }
        ]
    },
    [
        {"model_filename": "m.gguf", "n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ns": 100_000_000, "avg_ts": 5120.0},
        {"model_filename": "m.gguf", "n_prompt": 0, "n_gen": 128, "n_depth": 4096, "avg_ns": 1_280_000_000, "avg_ts": 100.0},
        {"model_filename": "m.gguf", "n_prompt": 0, "n_gen": 64, "n_depth": 64, "avg_ns": 1_280_000_000, "avg_ts": 100.0},
    ],
    {
        "time_to_first_token": {"unit": "ms", "avg": 52.0, "p50": 50.0},
        "inter_token_latency": {"unit": "ms", "avg": 9.5, "p50": 9.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 800.0},
        "output_sequence_length": {"unit": "tokens", "avg": 128.0},
        "input_sequence_length": {"unit": "tokens", "avg": 1024.0},
        "input_config": {"loadgen": {"concurrency": 8}},
    },
)  # fmt: skip
METRICS = """# HELP vllm:time_to_first_token_seconds Histogram
vllm:time_to_first_token_seconds_sum{model_name="m"} 12.5
vllm:time_to_first_token_seconds_count{model_name="m"} 100.0
vllm:num_requests_waiting{model_name="m"} 3.0
"""
SSE = (
    b'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": null}], "usage": {"prompt_tokens": 9, '
    b'"completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}}\n'
    b'data: {"choices": [], "timings": {"cache_n": 0, "prompt_n": 9, "prompt_ms": 4.5, "predicted_n": 3, '
    b'"predicted_per_token_ms": 1.5}}\ndata: [DONE]\n{"error": {"message": "no"}}\n'
)
OLLAMA = (
    b'{"model": "m", "response": "hi", "done": false}\n{"model": "m", "response": "", "done": true, '
    b'"prompt_eval_count": 9, "prompt_eval_duration": 4500000, "eval_count": 3, "eval_duration": 9000000, "load_duration": 1}\n'
)
EVENTS = (
    b'{"event": "plan", "probe": "gemm", "cases": ["a", "b"]}\n{"event": "start", "probe": "gemm", "case": "a"}\n'
    b'{"event": "result", "probe": "gemm", "case": "a", "value": 1.5, "unit": "s"}\n{"event": "done"}\n'
)


def measured_run():
    """A run with every probe that a page or a profile reads."""
    run = a100()
    product = {"format": "bf16", "shape": "gate_up", "n": 28_672, "k": 4096}
    whole = {"config": LLAMA, "dtype": "bf16", "source": "Qwen/Qwen3-0.6B"}
    run["state"] = {
        "remarks": ["busy"],
        "layers": [{"case": "x1", "measured_s": 1e-3, "parts_s": 9e-4, "ratio": 1.1}],
    }
    run["problems"] = [
        {"probe": "gemm", "case": "a", "kind": "wrong answer", "message": "no", "next_step": ""}
    ]
    run["cases"] += [
        *(case("bandwidth", f"scale {n}", 1.5e12, "B/s", parameters={"kernel": "scale", "sweep": True, "bytes": n << 20}) for n in (8, 64)),
        *(case("gemm", f"bf16 x{n}", 2e14, "FLOP/s", parameters={**product, "tokens": n}, extra={"best": 2.1e14}) for n in (8, 4096)),
        case("decode_attention", "8 at 4096", 9e11, "B/s", parameters={"way": "sdpa", "batch": 8, "context": 4096}),
        case("prefill_attention", "4096", 1e14, "FLOP/s", parameters={"backend": "FLASH", "tokens": 4096}, extra={"best": 1.1e14}),
        case("all_reduce", "2 ranks", 1e11, "B/s", parameters={"ranks": 2}, extra={"rows": [{"bytes": n, "queued": timing(1e-5 + n / 1e11)} for n in (8192, 65536, 1 << 19, 1 << 22, 1 << 25)]}),
        case("whole_path", "without a cache", 40.0, "s", parameters={**whole, "tokens": 16}, extra={"prompt": 32}),
        case("whole_path", "1 drafts", 1.6, "tokens", parameters={**whole, "drafts": 1}, extra={"acceptance": 0.6, "passes": 9, "speedup": 1.2}),
        case("whole_path", "int8 weights", 0.01, "s", parameters={**whole, "scheme": "int8"}, extra={"prompt": 32, "weight_bytes": 1e6, "ttft_s": 0.1, "logit_error": 0.01, "same_argmax": 0.9}),
        case("whole_path", "vllm levels", 9.0, "tokens/s", parameters={**whole, "family": "vllm"}, extra={"input": 8, "output": 4, "slots": 4, "levels": [{"concurrency": 2, "tokens_per_s": 9.0, "ttft_p50_s": 0.1, "ttft_p90_s": 0.2, "ttft_p99_s": None}]}),
    ]  # fmt: skip
    return run


def load_test_run():
    """A run of our own load test, as it lies in a file."""

    def sample(stage, start, prompt, tokens=11):
        return Sample(
            stage=stage, scheduled_s=start, start_s=start, first_s=start + 0.1 + prompt * 1e-4, last_s=start + 0.6 + prompt * 1e-4,
            end_s=start + 0.7 + prompt * 1e-4, prompt_tokens=prompt, output_tokens=tokens, cached_tokens=0, chunks=tokens,
            asked_tokens=tokens, server={"prompt_s": 0.1, "per_token_s": 0.05},
        )  # fmt: skip

    plan = TestPlan(prompt_lengths=(128, 512), prompt_repeats=2, decode_repeats=2, concurrency=(1, 2))
    samples = [
        *(sample("prefill", n, 128 + 384 * (n % 2)) for n in range(4)), *(sample("decode", 10 + n, 256, 65) for n in range(2)),
        *(sample("concurrency 1", 20 + n, 256) for n in range(6)), *(sample("concurrency 2", 30 + 0.5 * n, 256) for n in range(8)),
        sample("cached", 60, 128), sample("uncached", 61, 128),
    ]  # fmt: skip
    return {
        "kind": "ridgebeam endpoint run", "schema": 1, "target": "http://127.0.0.1:1", "api": "openai", "model": "m",
        "plan": plan.as_json(), "samples": [s.as_json() for s in samples], "server": {"slots": 2, "engine": "vllm"},
        "server_means": {"concurrency 1": {"ttft_s": 0.1}}, "waiting": {"concurrency 2": 1.0},
        "client": {"cpu_s": 0.5, "lag_p99_s": 0.001}, "notes": ["a note"], "wall_s": 70.0,
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One way in: valid samples, the use that the product makes, and the errors that damage may give."""

    name: str
    use: Callable[[bytes], object]
    samples: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = (RidgebeamError,)
    cost: int = 1  # rounds are divided by it


def text_of(data):
    """Bytes as every page decodes an upload."""
    return data.decode("utf-8", errors="replace")


def in_a_file(data, name, read):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return read(path)


@cache
def small_model(accelerator_id=GPU):
    return step_model(accelerators.load(accelerator_id), None)


@cache
def small_spec():
    return models.load("Qwen/Qwen3-0.6B")


def step_model(accelerator, profile):
    found = profile or profiles.load(accelerator if accelerator.arch else GPU)
    return StepModel.of(small_spec(), accelerator, Layout(), found)


def times(model):
    """What a step of decode, a prompt and a served request take."""
    decode = model.step(ForwardPass.decode(4.0, 1000.0)).total
    prompt = model.step(ForwardPass.prefill(512.0)).total
    return positive(decode.low, decode.best, decode.high, prompt.low, prompt.best, prompt.high)


def positive(*values):
    numbers = np.concatenate([np.ravel(np.asarray(value, dtype=float)) for value in values])
    assert np.all(numbers > 0), numbers
    return numbers


def use_config(data):
    spec = read_config_text(data).spec
    count = count_parameters(spec)
    assert 0 < count.active <= count.total
    assert stored_bytes(spec).stored > 0
    assert kv.sequence_bytes(spec, 1000) >= kv.sequence_bytes(spec, 1) >= 0
    return count


def use_scenario_file(data):
    scenario = from_json(text_of(data))
    assert from_json(to_json(scenario)) == scenario
    return shown_answer(scenario)


def use_link(data):
    scenario, problems = from_query(dict(parse_qsl(text_of(data), keep_blank_values=True)))
    assert all(isinstance(problem, str) and len(problem) < 700 for problem in problems)
    assert from_query(to_query(scenario))[1] == ()
    return shown_answer(scenario)


def shown_answer(scenario):
    """The answer that a page would show, on one accelerator and without suggestions that cost seconds."""
    found = answer(replace(resolve(scenario), catalogue=(), engine_offers=()))
    return (
        found.memory,
        found.sequences,
        found.decode,
        found.prefill,
        found.fleet,
        found.ttft_s,
        found.tpot_s,
        found.cost,
    )


def use_accelerator_json(data):
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return None
    accelerator = accelerator_from_json(record)
    assert accelerator_from_json(json.loads(json.dumps(accelerator_as_json(accelerator)))) == accelerator
    return times(step_model(accelerator, None)), accelerator.cuda_memory


def use_accelerator_text(data):
    accelerator = accelerator_from_text(text_of(data))
    assert accelerator_from_text(accelerator.id) == accelerator
    return times(step_model(accelerator, None))


def use_probe_run(data):
    from pages import _probe_figures, _probe_results

    run = store.checked(store.from_text(text_of(data)))
    shown = [_probe_results.run_metrics(run), _probe_results.data_rows(run), _probe_results.name_of(run)]
    shown += [
        _probe_figures.attention_rows(run),
        store.unsteady(run),
        store.findings_of(run),
        store.compare(run, run),
    ]
    shown += [
        _probe_figures.sizes_figure(run) is None,
        _probe_figures.curve_figure(run) is None,
        store.export_text(run),
    ]
    bars = _probe_figures.bars_of(run)
    shown += [_probe_figures.bars_finding(bars, peak_name="peak"), bars]
    shown += [store.whole_path(run)]
    profile = profiles.load(GPU)
    device = measured.device_profile(run, profile.device)
    torch = measured.torch_profile(run)
    accelerator = store.accelerator_of(run)
    return (
        shown,
        times(step_model(accelerator, replace(profile, device=device))),
        times(step_model(accelerator, torch)),
    )


def use_endpoint_run(data):
    from pages import _endpoint_figures

    run = run_from_text(text_of(data))
    report = report_of(run, model=small_model(), slo=Scenario(ttft_s=1.0).slo)
    shown = [report_json(report), level_rows(report), prompt_rows(report), len(report_html(report))]
    if report.prompts:
        shown.append(_endpoint_figures.prompt_finding(report))
    if any(row.level.ttft_s is not None and row.level.concurrency for row in report.levels):
        shown.append(_endpoint_figures.level_finding(report))
    return shown, calibrate(small_model(), observations_of(run)).as_json()


def use_load_test(data):
    found = read_load_test(text_of(data))
    return found.observations, calibrate(small_model(), found.observations * 3).as_json()


def use_trace(data):
    from calc.simulation.rules import engine_rules
    from calc.simulation.run import simulate
    from calc.simulation.step_table import StepTable

    requests = uploaded_trace(data, name="trace").requests
    assert np.all(np.diff(requests.arrival_s) >= 0)
    positive(requests.input_tokens, requests.output_tokens)
    if int(requests.input_tokens.sum() + requests.output_tokens.sum()) > 20_000:
        return requests.arrival_s
    step = StepTable.affine(fixed_s=1e-3, prefill_s=1e-5, decode_s=1e-5, kv_s=0.0)
    found = simulate(requests, engine_rules("vllm", num_blocks=4096, max_seqs=8), step, compiled=False)
    return requests.arrival_s, found.spread("ttft_s")


def use_fleet(data):
    rows = fleet_rows(read_fleet_text(data.decode("utf-8-sig", errors="replace")), Scenario())
    return [row.scenario for row in rows]


def use_log(data):
    log = read_log(text_of(data))
    settings = settings_from_log(log, EngineSettings())
    return compare(log, ledger(small_spec(), accelerators.load(GPU), Layout(), settings))


def use_gguf(data):
    found = in_a_file(data, "m.gguf", read_local_gguf)
    return count_parameters(found.spec), found.checkpoint, kv.sequence_bytes(found.spec, 100)


def use_tensors(data):
    file = io.BytesIO(data)
    return [
        read_matrix(file, tensor, name="n", most_values=64)
        for tensor in matrices(tensor_list(file, name="n"))
    ]


def use_profile(data):
    fitted = profiles.load(GPU)
    profile = in_a_file(data, "profile.json", lambda path: profiles.read_over(fitted, path))
    return times(step_model(accelerators.load(GPU), profile))


def use_calibration(data):
    import os

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "endpoints/profiles/endpoint-m-000001.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        before = os.environ.get("RIDGEBEAM_DATA_DIR")
        os.environ["RIDGEBEAM_DATA_DIR"] = folder
        try:
            profile = with_calibration(
                profiles.load(GPU), "endpoint-m-000001", accelerator_id=GPU, model_id="m"
            )
        finally:
            os.environ.pop("RIDGEBEAM_DATA_DIR")
            if before is not None:
                os.environ["RIDGEBEAM_DATA_DIR"] = before
    return times(step_model(accelerators.load(GPU), profile))


def use_hub_cache(data):
    with tempfile.TemporaryDirectory() as folder:
        cache_ = HubCache(folder=Path(folder))
        key = ("http://hub", "me/model", "")
        cache_.put(key, PUBLIC, "{}")
        (path,) = Path(folder).glob("*.json")
        path.write_bytes(data)
        entry = HubCache(folder=Path(folder)).get(key, PUBLIC, stale=True)
        model = None if entry is None else hub._loaded(entry)
        return entry, None if model is None else model.checkpoint


def profile_file():
    profile = profiles.load(GPU)
    return json.dumps(profile.as_json()).encode()


def probed_profile_file():
    return json.dumps(measured.profile_json(a100())).encode()


def gguf_file():
    import sys

    sys.path.append(str(Path(__file__).parents[1] / "presets"))
    from gguf_files import llama_tensors, write_whole

    sizes = {"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        whole = write_whole(Path(folder) / "m.gguf", "llama", sizes, llama_tensors(sizes), 20).read_bytes()
    return whole[:8000]


def csv_of(rows):
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return "\n".join(
        [",".join(columns), *(",".join(str(row.get(name, "")) for name in columns) for row in rows)]
    )


def readers() -> tuple[Reader, ...]:
    """The table. A new way in gets a row."""
    plain = json.dumps
    some_configs = [c for name in models.preset_ids()[::6] if (c := models.config_of(name))]
    typed = "typed:memory=48GB,bandwidth=1000GB/s,16bit=100TFLOPS,8bit=200TFLOPS,link=50GB/s,node=4,power=300W,name=mine"
    calibration = {"accelerator": GPU, "model": "m", "profile": profiles.load(GPU).as_json()}
    kept = plain(
        {
            "repo_id": "me/model", "commit": None, "config": LLAMA, "hf_quant_config": None, "warnings": [],
            "checkpoint": {
                "stored_bytes": 9, "bytes_by_format": [["BF16", 9]], "elements_by_format": [["BF16", 4]],
                "n_tensors": 1, "n_files": 1, "source": "safetensors headers",
            },
        }
    )  # fmt: skip
    hub_entry = {
        "format": FORMAT,
        "key": ["http://hub", "me/model", ""],
        "read_at": time.time(),
        "text": kept,
    }
    return (
        Reader(
            name="config", use=use_config, samples=tuple(plain(c).encode() for c in (LLAMA, *some_configs))
        ),
        Reader(
            name="scenario file",
            use=use_scenario_file,
            samples=(
                to_json(Scenario()).encode(),
                to_json(Scenario(model="Qwen/Qwen3-0.6B", gpu="l4")).encode(),
            ),
            cost=8,
        ),
        Reader(
            name="link",
            use=use_link,
            samples=tuple(
                urlencode(to_query(scenario)).encode()
                for scenario in (
                    Scenario(model="Qwen/Qwen3-0.6B", gpu="l4", tp=2, tpot_s=0.03, rate_per_s=2.0, users=4),
                    Scenario(
                        traffic="users",
                        users=9,
                        output_tokens=64.0,
                        ttft_s=1.0,
                        percentile=99.0,
                        headroom=0.1,
                    ),
                    Scenario(
                        kv_bytes_per_gpu=1e10, memory_utilization=0.8, max_seqs=64, adapters=3, draft_tokens=2
                    ),
                )
            ),
            cost=8,
        ),
        Reader(
            name="typed accelerator, JSON",
            use=use_accelerator_json,
            samples=tuple(
                plain(accelerator_as_json(accelerators.load(name))).encode() for name in (GPU, "l4", "mi300x")
            ),
        ),
        Reader(name="typed accelerator, text", use=use_accelerator_text, samples=(typed.encode(),)),
        Reader(
            name="probe run",
            use=use_probe_run,
            samples=(plain(a100()).encode(), plain(measured_run()).encode()),
            cost=4,
        ),
        Reader(name="endpoint run", use=use_endpoint_run, samples=(plain(load_test_run()).encode(),), cost=4),
        Reader(
            name="load test file",
            use=use_load_test,
            samples=(*(plain(one).encode() for one in LOAD_TESTS), plain(load_test_run()).encode()),
            cost=2,
        ),
        Reader(
            name="trace",
            use=use_trace,
            samples=(*(t.encode() for t in TRACES.values()), gzip.compress(TRACES["vidur"].encode())),
        ),
        Reader(name="fleet table", use=use_fleet, samples=(csv_of(EXAMPLE).encode(),)),
        Reader(name="start-up log", use=use_log, samples=tuple(log.encode() for log in LOGS)),
        Reader(name="GGUF", use=use_gguf, samples=(gguf_file(),)),
        Reader(
            name="safetensors",
            use=use_tensors,
            samples=(save({"w": np.ones((4, 8), np.float32), "b": np.ones(8, np.float16)}),),
        ),
        Reader(
            name="safetensors header",
            use=lambda data: parse_header(data, file="f"),
            samples=(
                b'{"__metadata__": {"format": "pt"}, "w": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]}}',
            ),
        ),
        Reader(
            name="shard index",
            use=lambda data: shards_of(_object(data)),
            samples=(
                b'{"metadata": {"total_size": 64}, "weight_map": {"w": "model-00001-of-00002.safetensors"}}',
            ),
        ),
        Reader(name="profile file", use=use_profile, samples=(profile_file(), probed_profile_file())),
        Reader(name="stored calibration", use=use_calibration, samples=(plain(calibration).encode(),)),
        Reader(name="hub cache", use=use_hub_cache, samples=(plain(hub_entry).encode(),), errors=()),
        Reader(
            name="hub answer",
            use=lambda data: use_config(json.dumps(json_object(data, ASKED))),
            samples=(plain(LLAMA).encode(),),
        ),
        Reader(
            name="price snapshot", use=lambda data: read_snapshot(text_of(data)), samples=(PRICES.encode(),)
        ),
        Reader(
            name="event stream",
            use=lambda data: [read_line(Api.CHAT, line) for line in data.splitlines()],
            samples=(SSE,),
            errors=(),
        ),
        Reader(
            name="Ollama stream",
            use=lambda data: [read_line(Api.OLLAMA, line) for line in data.splitlines()],
            samples=(OLLAMA,),
            errors=(),
        ),
        Reader(
            name="server metrics",
            use=lambda data: means_between({}, parse_metrics(text_of(data))),
            samples=(METRICS.encode(),),
            errors=(),
        ),
        Reader(
            name="probe events",
            use=lambda data: [events.parse_line(line) for line in text_of(data).splitlines()],
            samples=(EVENTS,),
            errors=(),
        ),
        Reader(
            name="model id",
            use=lambda data: parse_reference(text_of(data)),
            samples=(
                b"meta-llama/Llama-2-13b-hf@main",
                b"https://huggingface.co/Qwen/Qwen3-0.6B/tree/main",
                b"a/b:Q4_K_M",
            ),
        ),
        Reader(
            name="stock",
            use=lambda data: stocks_of(text_of(data).split()),
            samples=(b"h100-sxm5-80gb=16 eu:l40s=4",),
        ),
    )


def _object(data):
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


ASKED = Asked(repo_id="me/model", revision=None, what="config.json", hub="hub", with_token=False)
PRICES = """[[reading]]
date = 2026-09-20
source = "https://example.org"
prices = [{gpu = "l4", cloud = "a", usd_per_hour = 0.8, gpus = 1, instance = "i"}, {gpu = "l40s", cloud = "a", usd_per_hour = 8.0, gpus = 8, kind = "spot"}]
"""
