"""The memory rules of serving engines: `ledger` says whether an engine starts, and which KV token count it will print."""

from __future__ import annotations

from calc.accelerator import Accelerator
from calc.engine import Engine, engine_named
from calc.layout import Layout
from calc.memory.engines.ledger import KvNumbers, Ledger, Line, LineKind, RankLedger
from calc.memory.engines.llama_cpp import llama_cpp_ledger
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.sglang import sglang_ledger
from calc.memory.engines.tensorrt_llm import tensorrt_llm_ledger
from calc.memory.engines.vllm import vllm_ledger
from calc.model import ModelSpec

__all__ = [
    "Engine",
    "EngineSettings",
    "KvNumbers",
    "Ledger",
    "Line",
    "LineKind",
    "RankLedger",
    "engine_named",
    "ledger",
]

LEDGERS = {
    Engine.VLLM: vllm_ledger,
    Engine.SGLANG: sglang_ledger,
    Engine.TENSORRT_LLM: tensorrt_llm_ledger,
    Engine.LLAMA_CPP: llama_cpp_ledger,
    Engine.OLLAMA: llama_cpp_ledger,
}


def ledger(spec: ModelSpec, accelerator: Accelerator, layout: Layout, settings: EngineSettings) -> Ledger:
    """Memory of every GPU of one replica, its KV pool, and the verdict, by the rules of `settings.engine`."""
    return LEDGERS[settings.engine](spec, accelerator, layout, settings)
