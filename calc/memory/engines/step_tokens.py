"""Tokens of one step of one attention rank: as settings say, or by the engine's default on the card."""

from __future__ import annotations

from calc.accelerator import Accelerator
from calc.engine import LLAMA_CPP_ENGINES, Engine
from calc.layout import Layout
from calc.memory.engines.llama_cpp import MICRO_BATCH
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.sglang_defaults import card_defaults, sglang_version
from calc.memory.engines.shapes import shape_of
from calc.memory.engines.tensorrt_llm import STEP_TOKENS
from calc.memory.engines.vllm_start import resolve_start
from calc.memory.flag_scope import default_step_tokens
from calc.model import ModelSpec
from calc.units import GIB


def step_tokens(spec: ModelSpec, accelerator: Accelerator, layout: Layout, settings: EngineSettings) -> int:
    """VLLM's and TensorRT-LLM's tokens of a step, SGLang's prefill chunk, llama.cpp's micro batch."""
    if settings.max_batched_tokens is not None:
        return settings.max_batched_tokens
    if settings.engine in LLAMA_CPP_ENGINES:
        return MICRO_BATCH
    if settings.engine is Engine.VLLM:
        return resolve_start(shape_of(spec), accelerator, settings).tokens
    if settings.engine is Engine.SGLANG:
        card_gib = float(accelerator.driver_memory_bytes or accelerator.cuda_memory.best) / GIB
        chunk = card_defaults(sglang_version(settings.version), card_gib).chunk
        return default_step_tokens(settings.engine, chunk, layout)
    return STEP_TOKENS
