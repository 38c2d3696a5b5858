"""What a public start-up log states of its launch, as settings: flags, layout, cache format and weight format of a row."""

from __future__ import annotations

import re
from typing import Any

from calc.engine import Engine
from calc.layout import Layout
from calc.memory.engines import EngineSettings
from calc.model import ModelSpec
from calc.quantization import stored_bytes
from presets.engine_logs import EngineLog, flag_number, is_legacy, readings, release_of


def settings_of(log: EngineLog) -> EngineSettings:
    """The settings that a row states or that its reading adds; nothing of what the engine reported."""
    reading = readings().get(log.case_id)
    batched, seqs = flag_number(log, "max_num_batched_tokens"), flag_number(log, "max_num_seqs")
    values: dict[str, Any] = {
        "engine": engine_of(log),
        "version": release_of(log),
        "legacy_engine": is_legacy(log) if "vllm" in log.engine else None,
        "memory_utilization": log.utilization,
        "max_model_len": log.max_model_len,
        "block_size": log.block_size if not _hybrid_block(log) else None,
        "kv_dtype": kv_dtype_of(log),
        "max_batched_tokens": int(batched) if batched else None,
        "max_seqs": int(seqs) if seqs else None,
        "enforce_eager": "enforce_eager" in log.flags,
        "chunked_prefill": True if "chunked prefill" in log.flags else None,
        "offline": "offline" in log.flags,
        "mxfp4_kernel": _mxfp4_kernel(log),
        "state_slots": int(slots) if (slots := flag_number(log, "max_mamba_cache_size")) else None,
    }
    if reading is not None:
        values |= dict(reading.settings)
    return EngineSettings(**values)


def _mxfp4_kernel(log: EngineLog) -> str | None:
    """The experts' kernel where the weight column names it."""
    text = log.weight_format.lower()
    return next((kernel for kernel in ("marlin", "triton") if kernel in text), None)


def _hybrid_block(log: EngineLog) -> bool:
    """Whether the block size that a log reports is the engine's own alignment rather than a flag."""
    return (log.block_size or 0) > 256


def engine_of(log: EngineLog) -> Engine:
    """The engine of a row."""
    name = log.engine.lower()
    for key, engine in (
        ("vllm", Engine.VLLM),
        ("sglang", Engine.SGLANG),
        ("tensorrt", Engine.TENSORRT_LLM),
        ("ollama", Engine.OLLAMA),
    ):
        if key in name:
            return engine
    return Engine.LLAMA_CPP


def kv_dtype_of(log: EngineLog) -> str | None:
    """The cache format that the column names, or None for the engine's own."""
    text = log.kv_dtype.lower()
    found = re.match(r"(fp8\w*|nvfp4|q8_0|q4_0|bf16|fp16|f16)", text)
    return found[1] if found else None


def layout_of(log: EngineLog) -> Layout:
    """The layout of a row; experts are spread over TP (and DP) where the log says so."""
    reading = readings().get(log.case_id)
    tp = reading.tp if reading is not None and reading.tp else log.tp
    ranks = tp * log.dp
    return Layout(tp=tp, pp=log.pp, dp=log.dp, ep=ranks if log.ep and ranks > 1 else 0)


# Words of the weight column -> stored format, the first that is found; the checkpoint's own format where it has one.
FORMAT_WORDS = (
    ("fp8 dynamic", "fp8-channel"),
    ("fp8-dynamic", "fp8-channel"),
    ("fp8 (runtime", "fp8-channel"),
    ("fp8 (online", "fp8-channel"),
    ("nvfp4", "nvfp4"),
    ("mxfp4", "mxfp4"),
    ("fp8", "fp8-block"),
    ("int8", "int8"),
    ("w4a16", "gptq"),
    ("awq", "awq"),
    ("bitsandbytes", "bnb-4bit"),
    ("bnb", "bnb-4bit"),
    ("int4", "int4-g128"),
    ("4-bit", "int4-g128"),
    ("4 bit", "int4-g128"),
    ("float32", "fp32"),
    ("bf16", "bf16"),
    ("float16", "bf16"),
)


def quantization_of(log: EngineLog, spec: ModelSpec) -> str | None:
    """The weight format of a row as a what-if on the spec, or None where the checkpoint is stored so already."""
    reading = readings().get(log.case_id)
    if reading is not None and "quantization" in reading.settings:
        return str(reading.settings["quantization"])
    columns = (log.weight_format, log.model)
    wanted = next((form for text in columns for word, form in FORMAT_WORDS if word in text.lower()), None)
    stored = {k: v for k, v in stored_bytes(spec).by_format.items() if k not in ("bf16", "fp16", "fp32")}
    if wanted == "bf16":
        return "bf16" if stored else None
    if wanted is None or not stored:
        return wanted
    most = max(stored, key=stored.__getitem__)
    return None if wanted.split("-")[0] == most.split("-")[0] else wanted
