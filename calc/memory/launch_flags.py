"""The command-line flags that start an engine with given settings: `launch_flags`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from calc.engine import Engine
from calc.layout import Layout
from calc.memory.engines import EngineSettings
from calc.memory.flag_scope import flag_value
from calc.units import GB, GIB, MIB

Pairs = list[tuple[str, object]]

# What engines call the cache formats that we know; a name that is missing is handed on as it is, and
# `calc.memory.launch_table.problems_of` says that the engine does not take it.
CACHE_NAMES: Mapping[Engine, Mapping[str, str]] = MappingProxyType(
    {
        Engine.VLLM: {"bf16": "bfloat16", "fp16": "float16", "int8": "int8_per_token_head"},
        Engine.SGLANG: {"fp8": "fp8_e4m3", "fp16": "auto"},
        Engine.LLAMA_CPP: {"fp16": "f16", "fp32": "f32", "int8": "q8_0"},
        Engine.OLLAMA: {"fp16": "f16", "bf16": "f16", "int8": "q8_0"},
    }
)
TENSORRT_OPTIONS_FILE = "options.yaml"
VLLM_ROLES: Mapping[str, str] = MappingProxyType({"prefill": "kv_producer", "decode": "kv_consumer"})
"""What vLLM 0.33's NixlConnector asks for: a producer for prefill, a consumer for decode (its `kv_both` is deprecated)."""


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


def cache_name(engine: Engine, kv_dtype: str | None) -> str | None:
    """The engine's own word for a cache format."""
    return None if kv_dtype is None else CACHE_NAMES.get(engine, {}).get(kv_dtype, kv_dtype)


def tensorrt_options(layout: Layout, settings: EngineSettings) -> str:
    """What `trtllm-serve` reads from a YAML file instead of flags; empty where nothing is needed."""
    lines = []
    if layout.attention_dp > 1:
        lines.append("enable_attention_dp: true")
    cache = []
    if settings.kv_dtype is not None:
        cache.append(f"  dtype: {'auto' if settings.kv_dtype == 'bf16' else settings.kv_dtype}")
    if settings.host_cache_bytes_per_gpu is not None:
        cache.append(f"  host_cache_size: {int(settings.host_cache_bytes_per_gpu)}")
    if cache:
        lines += ["kv_cache_config:", *cache]
        if settings.memory_utilization is not None:  # the file's section replaces the flag
            lines.append(f"  free_gpu_memory_fraction: {settings.memory_utilization:g}")
    return "".join(f"{line}\n" for line in lines)


def _more_than_one(value: int) -> int | None:
    return value if value > 1 else None


def _counted(engine: Engine, layout: Layout, of_rank: Mapping[str, int | None]) -> Pairs:
    """Flags that count what one attention rank does, or what all of them do, as the engine reads each."""
    return [(flag, flag_value(engine, flag, value, layout)) for flag, value in of_rank.items()]


def _host_cache(settings: EngineSettings, unit: float, *, gpus: int = 1) -> int | None:
    """Host memory for text that returns, behind so many GPUs, in whole units; an engine's unit is its own."""
    room = settings.host_cache_bytes_per_gpu
    return None if room is None else max(1, int(room * gpus / unit))


def _vllm_role(role: str) -> str | None:
    if not role:
        return None
    return json.dumps({"kv_connector": "NixlConnector", "kv_role": VLLM_ROLES[role]})


def _vllm(model_id: str, layout: Layout, settings: EngineSettings) -> tuple[str, ...]:
    budget = settings.max_batched_tokens
    if budget is not None and settings.chunked_prefill is False:
        # It refuses to start where a whole prompt has no room.
        budget = max(budget, settings.max_model_len or 0)
    pairs: Pairs = [
        ("--tensor-parallel-size", _more_than_one(layout.attention_tp)),
        ("--pipeline-parallel-size", _more_than_one(layout.pp)),
        ("--data-parallel-size", _more_than_one(layout.attention_ranks)),
        ("--decode-context-parallel-size", _more_than_one(settings.decode_context_parallel)),
        ("--gpu-memory-utilization", settings.memory_utilization),
        ("--max-model-len", settings.max_model_len),
        *_counted(
            Engine.VLLM, layout, {"--max-num-batched-tokens": budget, "--max-num-seqs": settings.max_seqs}
        ),
        ("--block-size", settings.block_size),
        ("--kv-cache-dtype", cache_name(Engine.VLLM, settings.kv_dtype)),
        ("--quantization", settings.quantization if settings.quantization == "fp8" else None),
        (
            "--kv-cache-memory-bytes",
            None if settings.available_kv_bytes is None else int(settings.available_kv_bytes),
        ),
    ]
    pairs += [
        ("--max-loras", settings.adapters or None),
        ("--max-lora-rank", settings.adapter_rank if settings.adapters else None),
        ("--kv-offloading-size", _host_cache(settings, GIB, gpus=layout.attention_tp * layout.pp)),
        ("--kv-transfer-config", _vllm_role(settings.role)),
    ]
    switches = [
        ("--enable-lora", settings.adapters > 0),
        ("--enable-expert-parallel", layout.ep > 1),
        ("--enforce-eager", settings.enforce_eager),
        ("--no-enable-prefix-caching", settings.prefix_caching is False),
        ("--no-enable-chunked-prefill", settings.chunked_prefill is False),
        ("--disable-hybrid-kv-cache-manager", settings.hybrid_cache is False),
    ]
    return _words(["vllm", "serve", model_id], pairs, switches)


def _sglang(model_id: str, layout: Layout, settings: EngineSettings) -> tuple[str, ...]:
    counted = _counted(
        Engine.SGLANG,
        layout,
        {
            "--chunked-prefill-size": None
            if settings.chunked_prefill is False
            else settings.max_batched_tokens,
            "--max-running-requests": settings.max_seqs,
            "--max-mamba-cache-size": settings.state_slots,
        },
    )
    pairs: Pairs = [
        ("--model-path", model_id),
        ("--tp-size", _more_than_one(layout.tp)),
        ("--pp-size", _more_than_one(layout.pp)),
        ("--dp-size", _more_than_one(max(layout.dp, layout.attention_dp))),
        ("--ep-size", _more_than_one(layout.ep)),
        ("--mem-fraction-static", settings.memory_utilization),
        ("--context-length", settings.max_model_len),
        ("--chunked-prefill-size", -1 if settings.chunked_prefill is False else None),
        *counted,
        ("--page-size", settings.block_size),
        ("--kv-cache-dtype", cache_name(Engine.SGLANG, settings.kv_dtype)),
        ("--quantization", settings.quantization if settings.quantization == "fp8" else None),
        ("--swa-full-tokens-ratio", settings.window_pool_ratio),
    ]
    pairs += [
        ("--max-loras-per-batch", settings.adapters or None),
        ("--max-lora-rank", settings.adapter_rank if settings.adapters else None),
        ("--hicache-size", _host_cache(settings, GB)),
        ("--disaggregation-mode", settings.role or None),
    ]
    switches = [
        ("--enable-lora", settings.adapters > 0),
        ("--enable-hierarchical-cache", settings.host_cache_bytes_per_gpu is not None),
        ("--enable-dp-attention", layout.attention_dp > 1),
        ("--disable-cuda-graph", settings.enforce_eager),
        ("--disable-radix-cache", settings.prefix_caching is False),
    ]
    return _words(["python", "-m", "sglang.launch_server"], pairs, switches)


def _tensorrt_llm(model_id: str, layout: Layout, settings: EngineSettings) -> tuple[str, ...]:
    pairs: Pairs = [
        ("--tp_size", _more_than_one(layout.tp)),
        ("--pp_size", _more_than_one(layout.pp)),
        ("--ep_size", _more_than_one(layout.ep)),
        ("--kv_cache_free_gpu_memory_fraction", settings.memory_utilization),
        ("--max_seq_len", settings.max_model_len),
        *_counted(
            Engine.TENSORRT_LLM,
            layout,
            {"--max_num_tokens": settings.max_batched_tokens, "--max_batch_size": settings.max_seqs},
        ),
        ("--extra_llm_api_options", TENSORRT_OPTIONS_FILE if tensorrt_options(layout, settings) else None),
    ]
    return _words(["trtllm-serve", model_id], pairs, [])


def _llama_cpp(model_id: str, layout: Layout, settings: EngineSettings) -> tuple[str, ...]:
    """No degree is named: llama.cpp splits over all GPUs that it sees, by layers unless told to share each tensor.

    Slots are always named: without a number newer servers start four that share the context. With one, `--ctx-size` is
    parted evenly among the slots unless they share it (tools/server/server.cpp and src/llama-context.cpp, read 2026-11-30).
    """
    context = settings.max_model_len
    slots = settings.max_seqs or 1
    if context is not None and not settings.unified_cache:
        context *= slots
    pairs: Pairs = [
        ("--model", model_id),
        ("--ctx-size", context),
        ("--parallel", slots),
        ("--ubatch-size", settings.max_batched_tokens),
        ("--n-gpu-layers", settings.gpu_layers),
        ("--split-mode", "tensor" if layout.tp > 1 else None),
        ("--cache-type-k", cache_name(Engine.LLAMA_CPP, settings.kv_dtype)),
        ("--cache-type-v", cache_name(Engine.LLAMA_CPP, settings.kv_dtype)),
        ("--cache-ram", _host_cache(settings, MIB, gpus=layout.gpus_per_replica)),
    ]
    switches = [
        ("--kv-unified", settings.unified_cache and slots > 1),
        ("--swa-full", settings.full_window_cache),
    ]
    return _words(["llama-server"], pairs, switches)


def _ollama(model_id: str, layout: Layout, settings: EngineSettings) -> tuple[str, ...]:
    """Ollama's server is set up by environment variables; a model is named by the request, not by the command."""
    del layout, model_id
    cache = cache_name(Engine.OLLAMA, settings.kv_dtype)
    variables: Pairs = [
        ("OLLAMA_CONTEXT_LENGTH", settings.max_model_len),
        ("OLLAMA_NUM_PARALLEL", settings.max_seqs),
        ("OLLAMA_KV_CACHE_TYPE", cache),
        ("OLLAMA_FLASH_ATTENTION", None if cache in (None, "f16") else 1),  # quantised caches need it
    ]
    words = [f"{name}={value}" for name, value in variables if value is not None]
    return (*words, "ollama", "serve")
