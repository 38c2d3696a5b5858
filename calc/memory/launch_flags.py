"""The command-line flags that start an engine with given settings: `launch_flags`."""

from __future__ import annotations

from calc.engine import Engine
from calc.layout import Layout
from calc.memory.engines import EngineSettings

Pairs = list[tuple[str, object]]


def launch_flags(model_id: str, layout: Layout, settings: EngineSettings) -> tuple[str, ...]:
    """The command as words, ready to be joined; only what differs from the engine's own defaults is named."""
    makers = {
        Engine.VLLM: _vllm,
        Engine.SGLANG: _sglang,
        Engine.TENSORRT_LLM: _tensorrt_llm,
        Engine.LLAMA_CPP: _llama_cpp,
        Engine.OLLAMA: _ollama,
    }
    return makers[settings.engine](model_id, layout, settings)


def _words(start: list[str], pairs: Pairs, switches: list[tuple[str, bool]]) -> tuple[str, ...]:
    words = [*start]
    for flag, value in pairs:
        if value is not None:
            words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    return (*words, *(flag for flag, wanted in switches if wanted))


def _more_than_one(value: int) -> int | None:
    return value if value > 1 else None


def _vllm(model_id: str, layout: Layout, settings: EngineSettings) -> tuple[str, ...]:
    pairs: Pairs = [
        ("--tensor-parallel-size", _more_than_one(layout.tp)),
        ("--pipeline-parallel-size", _more_than_one(layout.pp)),
        ("--data-parallel-size", _more_than_one(layout.dp)),
        ("--decode-context-parallel-size", _more_than_one(settings.decode_context_parallel)),
        ("--gpu-memory-utilization", settings.memory_utilization),
        ("--max-model-len", settings.max_model_len),
        ("--max-num-batched-tokens", settings.max_batched_tokens),
        ("--max-num-seqs", settings.max_seqs),
        ("--block-size", settings.block_size),
        ("--kv-cache-dtype", settings.kv_dtype),
        ("--quantization", settings.quantization if settings.quantization == "fp8" else None),
        (
            "--kv-cache-memory-bytes",
            None if settings.available_kv_bytes is None else int(settings.available_kv_bytes),
        ),
    ]
    switches = [
        ("--enable-expert-parallel", layout.ep > 1),
        ("--enforce-eager", settings.enforce_eager),
        ("--no-enable-prefix-caching", settings.prefix_caching is False),
        ("--disable-hybrid-kv-cache-manager", settings.hybrid_cache is False),
    ]
    return _words(["vllm", "serve", model_id], pairs, switches)


def _sglang(model_id: str, layout: Layout, settings: EngineSettings) -> tuple[str, ...]:
    kv_dtype = {"fp8": "fp8_e4m3", "bf16": "bf16"}.get(settings.kv_dtype or "", settings.kv_dtype)
    pairs: Pairs = [
        ("--model-path", model_id),
        ("--tp-size", _more_than_one(layout.tp)),
        ("--pp-size", _more_than_one(layout.pp)),
        ("--dp-size", _more_than_one(max(layout.dp, layout.attention_dp))),
        ("--ep-size", _more_than_one(layout.ep)),
        ("--mem-fraction-static", settings.memory_utilization),
        ("--context-length", settings.max_model_len),
        ("--chunked-prefill-size", settings.max_batched_tokens),
        ("--max-running-requests", settings.max_seqs),
        ("--page-size", settings.block_size),
        ("--kv-cache-dtype", kv_dtype),
        ("--max-mamba-cache-size", settings.state_slots),
        (
            "--swa-full-tokens-ratio",
            None if settings.window_pool_ratio == 0.8 else settings.window_pool_ratio,
        ),
    ]
    switches = [
        ("--enable-dp-attention", layout.attention_dp > 1),
        ("--disable-cuda-graph", settings.enforce_eager),
    ]
    return _words(["python", "-m", "sglang.launch_server"], pairs, switches)


def _tensorrt_llm(model_id: str, layout: Layout, settings: EngineSettings) -> tuple[str, ...]:
    pairs: Pairs = [
        ("--tp_size", _more_than_one(layout.tp)),
        ("--pp_size", _more_than_one(layout.pp)),
        ("--ep_size", _more_than_one(layout.ep)),
        ("--kv_cache_free_gpu_memory_fraction", settings.memory_utilization),
        ("--max_seq_len", settings.max_model_len),
        ("--max_num_tokens", settings.max_batched_tokens),
        ("--max_batch_size", settings.max_seqs),
    ]
    return _words(["trtllm-serve", model_id], pairs, [])


def _llama_cpp(model_id: str, layout: Layout, settings: EngineSettings) -> tuple[str, ...]:
    del layout  # llama.cpp splits layers over all GPUs that it sees
    context = settings.max_model_len
    slots = settings.max_seqs or 1
    if context is not None and not settings.unified_cache:
        context *= slots
    pairs: Pairs = [
        ("-m", model_id),
        ("-c", context),
        ("-np", _more_than_one(slots)),
        ("-ub", settings.max_batched_tokens),
        ("-ngl", settings.gpu_layers),
        ("-ctk", settings.kv_dtype),
        ("-ctv", settings.kv_dtype),
    ]
    switches = [
        ("--kv-unified", settings.unified_cache and slots > 1),
        ("--swa-full", settings.full_window_cache),
    ]
    return _words(["llama-server"], pairs, switches)


def _ollama(model_id: str, layout: Layout, settings: EngineSettings) -> tuple[str, ...]:
    """Ollama is set up by environment variables, and started by a request."""
    del layout
    variables: Pairs = [
        ("OLLAMA_CONTEXT_LENGTH", settings.max_model_len),
        ("OLLAMA_NUM_PARALLEL", settings.max_seqs),
        ("OLLAMA_KV_CACHE_TYPE", settings.kv_dtype),
    ]
    words = [f"{name}={value}" for name, value in variables if value is not None]
    return (*words, "ollama", "run", model_id)
