"""The memory rules of serving engines: `ledger` says whether an engine starts, and which KV token count it will print."""

from __future__ import annotations

from dataclasses import replace

from calc.accelerator import Accelerator
from calc.engine import LLAMA_CPP_ENGINES, Engine
from calc.format_support import check_engine, not_served
from calc.layout import Layout
from calc.memory.engines.ledger import KvNumbers, Ledger, Line, LineKind, RankLedger
from calc.memory.engines.llama_cpp import llama_cpp_memory, llama_cpp_message, ollama_memory
from calc.memory.engines.nearest import with_verdict
from calc.memory.engines.newest import later_than_known
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.sglang import sglang_memory, sglang_message
from calc.memory.engines.sharding import check_heads
from calc.memory.engines.tensorrt_llm import tensorrt_llm_memory, tensorrt_llm_message
from calc.memory.engines.vllm import vllm_memory, vllm_message
from calc.model import ModelSpec

__all__ = [
    "EngineSettings",
    "KvNumbers",
    "Ledger",
    "Line",
    "LineKind",
    "RankLedger",
    "ledger",
]

RULES = {
    Engine.VLLM: (vllm_memory, vllm_message),
    Engine.SGLANG: (sglang_memory, sglang_message),
    Engine.TENSORRT_LLM: (tensorrt_llm_memory, tensorrt_llm_message),
    Engine.LLAMA_CPP: (llama_cpp_memory, llama_cpp_message),
    Engine.OLLAMA: (ollama_memory, llama_cpp_message),
}


def ledger(
    spec: ModelSpec,
    accelerator: Accelerator,
    layout: Layout,
    settings: EngineSettings,
    *,
    nearest: bool = True,
) -> Ledger:
    """Memory of every GPU of one replica, its KV pool, and the verdict, by the rules of `settings.engine`.

    Raises `InputError` where the engine does not run on the accelerator. `nearest=False` leaves out the nearest changes of a refusal: some dozens of further ledgers that a search over many
    candidates does not need.
    """
    check_engine(settings.engine, accelerator)
    if settings.engine not in LLAMA_CPP_ENGINES:
        check_heads(spec, layout)
    memory_of, message = RULES[settings.engine]
    drawn = memory_of(spec, accelerator, layout, settings)
    served = not_served(
        spec, settings.quantization or "auto", settings.kv_dtype or "auto", settings.engine, accelerator
    )
    remarks = (*served, *later_than_known(settings), *_beyond_the_model(spec, settings))
    return with_verdict(
        replace(drawn, assumptions=(*remarks, *drawn.assumptions)) if remarks else drawn,
        spec=spec,
        accelerator=accelerator,
        layout=layout,
        settings=settings,
        memory_of=memory_of,
        message=message,
        nearest=nearest,
    )


LONGER = {
    Engine.VLLM: "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
    Engine.SGLANG: "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
}
"""What makes an engine start with a longer limit than the config's: vllm/config/model.py, sglang's model_config.py."""


def _beyond_the_model(spec: ModelSpec, settings: EngineSettings) -> tuple[str, ...]:
    """What to know of a length limit that is longer than the model's own."""
    asked, most = settings.max_model_len, spec.max_positions
    if asked is None or most is None or asked <= most:
        return ()
    allowed = LONGER.get(settings.engine)
    start = f"{settings.engine} starts with a longer limit only where {allowed} is set" if allowed else ""
    beyond = (
        f"The model's config ends at {most:,} positions, and text beyond them is not what it was trained on"
    )
    return (f"{beyond}; {start}." if start else f"{beyond}.",)
