"""Start-up logs of the four engines, as they print them, read line by line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.engine import Engine
from calc.errors import InputError
from calc.memory.logs import MAX_CHARS, Quantity, read_log
from calc.units import GIB, MIB

VLLM_11 = """
INFO 09-23 18:10:01 [api_server.py:1822] vLLM API server version 0.11.0
(EngineCore_DP0 pid=3021) INFO 09-23 18:11:09 [gpu_model_runner.py:2653] Model loading took 14.0800 GiB and 6.03 seconds
(EngineCore_DP0 pid=3021) INFO 09-23 18:12:30 [gpu_worker.py:298] Available KV cache memory: 55.15 GiB
(EngineCore_DP0 pid=3021) INFO 09-23 18:12:30 [kv_cache_utils.py:1087] GPU KV cache size: 451,744 tokens
(EngineCore_DP0 pid=3021) INFO 09-23 18:12:30 [kv_cache_utils.py:1091] Maximum concurrency for 4,096 tokens per request: 110.29x
(EngineCore_DP0 pid=3021) INFO 09-23 18:12:39 [gpu_model_runner.py:3118] Graph capturing finished in 5 secs, took 0.67 GiB
(EngineCore_DP0 pid=3021) INFO 09-23 18:12:39 [gpu_worker.py:391] Free memory on device (78.66/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB). Actual usage is 14.08 GiB for weight, 1.97 GiB for peak activation, 0.07 GiB for non-torch memory, and 0.67 GiB for CUDAGraph memory.
"""
VLLM_28 = """
(EngineCore pid=326) INFO 10-06 17:00:33 [kv_cache_utils.py:2464] GPU KV cache size: 460,496 tokens, Maximum concurrency for 131,072 tokens per request: 3.51x
(EngineCore pid=326) INFO 10-06 17:00:41 [gpu_worker.py:955] Free memory on device (78.84/79.25 GiB) on startup. Desired GPU memory utilization is (0.92, 72.91 GiB). Actual usage is 15.26 GiB for consumed memory (weights + non-torch), 1.44 GiB for peak activation, and 0.23 GiB for CUDAGraph memory.
(EngineCore pid=326) INFO 10-06 17:00:33 [gpu_worker.py:692] Available KV cache memory: 56.21 GiB
(Worker_TP0) INFO 08-20 17:28:08 [gpu_worker.py:793] CUDA graph pool memory: 4.13 GiB (actual), 4.99 GiB (estimated), difference: 0.86 GiB (20.9%).
"""
VLLM_V0 = """
INFO 12-13 worker.py:241] Memory profiling takes 5.21 seconds
INFO 12-13 worker.py:241] the current vLLM instance can use total_gpu_memory (31.74GiB) x gpu_memory_utilization (0.90) = 28.57GiB
INFO 12-13 worker.py:241] model weights take 14.25GiB; non_torch_memory takes 0.09GiB; PyTorch activation peak memory takes 4.35GiB; the rest of the memory reserved for KV Cache is 9.88GiB.
INFO 12-13 executor_base.py:112] # cuda blocks: 11562, # CPU blocks: 4681
ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache (23648). Try increasing `gpu_memory_utilization`
"""
VLLM_REFUSAL = """
ValueError: To serve at least one request with the model's max seq len (131072), (4.54 GiB KV cache is needed, which is larger than the available KV cache memory (1.71 GiB). Based on the available memory, the estimated maximum model length is 49344. Try increasing
"""
SGLANG = """
[2026-10-10 11:54:06] Load weight begin. avail mem=22.76 GB
[2026-10-10 11:59:36] Load weight end. elapsed=9.53 s, type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=8.37 GB, mem usage=14.39 GB.
[2026-10-10 11:59:39] Mamba Cache is allocated. max_mamba_cache_size: 117, conv_state size: 0.28GB, ssm_state size: 8.07GB
[2026-10-10 11:59:41] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 105531, K size: 2.82 GB, V size: 2.82 GB
[2026-10-10 12:00:41] Capture cuda graph end. Time elapsed: 4.76 s. mem usage=0.10 GB. avail mem=1.58 GB.
[2026-10-10 12:00:42] max_total_num_tokens=105531, chunked_prefill_size=2048, max_prefill_tokens=16384, context_len=32768
"""
TENSORRT_LLM = """
[TensorRT-LLM][INFO] TensorRT-LLM version: 0.17.0
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 31.84 GiB, available: 17.83 GiB
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 8219
[TensorRT-LLM][INFO] Number of tokens per block: 32.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008).
"""
LLAMA_CPP = """
build: 6100 (abcdef0) with gcc for x86_64-linux-gnu
load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
llama_context: n_ctx         = 8192
llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB
llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB
llama_memory_recurrent: size =   50.25 MiB (     1 cells,  32 layers,  1 seqs), R (f32):    2.25 MiB, S (f32):   48.00 MiB
llama_context:      CUDA0 compute buffer size =   560.00 MiB
"""


def test_vllm_with_the_four_terms_in_one_line():
    log = read_log(VLLM_11)
    assert (log.engine, log.version) == (Engine.VLLM, "0.11.0")
    assert log.binding(Quantity.KV) == 55.15 * GIB
    assert log.binding(Quantity.TOKENS) == 451_744
    assert log.binding(Quantity.CONCURRENCY) == 110.29
    assert log.binding(Quantity.MAX_MODEL_LEN) == 4096
    assert log.binding(Quantity.ACTIVATION) == 1.97 * GIB
    assert log.binding(Quantity.NON_TORCH) == 0.07 * GIB
    assert log.binding(Quantity.UTILIZATION) == 0.9
    assert log.binding(Quantity.TOTAL) == 79.19 * GIB
    # The identity of 0.11 closes: graphs are not subtracted.
    parts = (Quantity.WEIGHTS, Quantity.ACTIVATION, Quantity.NON_TORCH)
    rest = 0.9 * 79.19 * GIB - sum(log.binding(part) for part in parts)
    assert rest == pytest.approx(55.15 * GIB, abs=0.01 * GIB)


def test_vllm_with_consumed_memory():
    log = read_log(VLLM_28)
    assert log.binding(Quantity.CONSUMED) == 15.26 * GIB
    assert log.binding(Quantity.TOKENS) == 460_496
    assert log.values(Quantity.GRAPHS_ESTIMATED) == (4.99 * GIB,)
    assert log.binding(Quantity.KV) == 56.21 * GIB


def test_vllm_v0_and_its_refusal():
    log = read_log(VLLM_V0)
    assert log.binding(Quantity.WEIGHTS) == 14.25 * GIB
    assert log.binding(Quantity.KV) == 9.88 * GIB
    assert log.binding(Quantity.BLOCKS) == 11_562
    assert log.binding(Quantity.TOKENS) == 23_648
    assert log.binding(Quantity.TOTAL) == 31.74 * GIB


def test_vllm_refusal_of_v1():
    log = read_log(VLLM_REFUSAL)
    assert log.binding(Quantity.NEEDED) == 4.54 * GIB
    assert log.binding(Quantity.KV) == 1.71 * GIB
    assert log.binding(Quantity.LONGEST) == 49_344


def test_sglang():
    log = read_log(SGLANG)
    assert log.engine is Engine.SGLANG
    assert log.binding(Quantity.KV) == pytest.approx(5.64 * GIB)
    assert log.binding(Quantity.TOKENS) == 105_531
    assert log.binding(Quantity.WEIGHTS) == 14.39 * GIB
    assert log.binding(Quantity.STATES) == pytest.approx(8.35 * GIB)
    assert log.binding(Quantity.FREE_BEFORE) == 22.76 * GIB
    assert log.binding(Quantity.MAX_MODEL_LEN) == 32_768


def test_tensorrt_llm():
    log = read_log(TENSORRT_LLM)
    assert (log.engine, log.version) == (Engine.TENSORRT_LLM, "0.17.0")
    assert log.binding(Quantity.BLOCKS) == 8219
    assert log.binding(Quantity.TOKENS) == 263_008
    assert log.binding(Quantity.KV) == 16.05 * GIB
    assert log.binding(Quantity.BLOCK_SIZE) == 32
    assert 0.9 * log.binding(Quantity.FREE_AFTER) == pytest.approx(16.05 * GIB, rel=1e-3)


def test_llama_cpp():
    log = read_log(LLAMA_CPP)
    assert log.engine is Engine.LLAMA_CPP
    assert log.binding(Quantity.WEIGHTS) == 4403.49 * MIB
    assert log.binding(Quantity.KV) == 1024 * MIB
    assert log.binding(Quantity.COMPUTE_BUFFER) == 560 * MIB
    assert log.binding(Quantity.STATES) == 50.25 * MIB
    assert log.binding(Quantity.MAX_MODEL_LEN) == 8192


def test_of_several_ranks_the_smallest_pool_binds():
    text = "\n".join(f"Available KV cache memory: {gib} GiB" for gib in (40.39, 40.35, 40.12))
    assert read_log(text).binding(Quantity.KV) == 40.12 * GIB


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=500))
def test_any_text_is_read_without_an_exception(text):
    assert read_log(text).facts is not None


def test_a_text_without_a_log_has_no_facts():
    log = read_log("Shall I compare thee to a summer's day?\n" * 50)
    assert (log.engine, log.facts) == (None, ())


def test_a_huge_text_is_refused():
    with pytest.raises(InputError, match="log"):
        read_log("x" * (MAX_CHARS + 1))
