"""Valid samples of what others hand in: configs, traces, logs, results of load tests, runs, profiles, files of weights."""

import json
import tempfile
from pathlib import Path

from gguf_files import llama_tensors, write_whole
from published_run import a100, case, timing

from calc.endpoint.plan import TestPlan
from calc.endpoint.samples import Sample
from presets import profiles
from probes import measured

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


PRICES = """[[reading]]
date = 2026-09-20
source = "https://example.org"
prices = [{gpu = "l4", cloud = "a", usd_per_hour = 0.8, gpus = 1, instance = "i"}, {gpu = "l40s", cloud = "a", usd_per_hour = 8.0, gpus = 8, kind = "spot"}]
"""


def profile_file():
    profile = profiles.load(GPU)
    return json.dumps(profile.as_json()).encode()


def probed_profile_file():
    return json.dumps(measured.profile_json(a100())).encode()


def gguf_file():
    sizes = {"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        whole = write_whole(Path(folder) / "m.gguf", "llama", sizes, llama_tensors(sizes), 20).read_bytes()
    return whole[:8000]


def csv_of(rows):
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return "\n".join(
        [",".join(columns), *(",".join(str(row.get(name, "")) for name in columns) for row in rows)]
    )
