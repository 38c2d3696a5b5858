"""Which serving engines are known: `Engine`, by the names that flags, links and files use."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from calc.errors import InputError


class Engine(StrEnum):
    """Serving engines whose memory rules are modelled. Ollama runs llama.cpp and decides which layers go on the GPU."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"
    LLAMA_CPP = "llama.cpp"
    OLLAMA = "ollama"


LLAMA_CPP_ENGINES: Final = (Engine.LLAMA_CPP, Engine.OLLAMA)
"""llama.cpp, and what runs it: GGUF files, one host, and layers that do not fit stay in the host's memory."""

ENGINE_NAMES = {
    Engine.VLLM: "vLLM",
    Engine.SGLANG: "SGLang",
    Engine.TENSORRT_LLM: "TensorRT-LLM",
    Engine.OLLAMA: "Ollama",
}

_ALIASES = {
    "trt-llm": Engine.TENSORRT_LLM,
    "trtllm": Engine.TENSORRT_LLM,
    "llamacpp": Engine.LLAMA_CPP,
    "llama-cpp": Engine.LLAMA_CPP,
}


def engine_named(text: str) -> Engine:
    """The engine of a name as people write it, or `InputError` listing the known ones."""
    wanted = text.strip().lower().replace("_", "-").replace(" ", "-")
    if wanted in _ALIASES:
        return _ALIASES[wanted]
    if wanted in tuple(Engine):
        return Engine(wanted)
    raise InputError("engine", text, f"it must be one of {', '.join(Engine)}")
