"""The same card, model and lengths under every engine that runs there, each by its own rules and defaults."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.accelerator import Accelerator
from calc.engine import Engine
from calc.format_support import engine_support
from calc.layout import Layout
from calc.memory.bars import RankBar, rank_bars
from calc.memory.engines import EngineSettings, ledger
from calc.model import ModelSpec
from calc.provenance import Estimate

# Releases between which vLLM's rules differ most, for a comparison on one card.
COMPARED_VERSIONS = (
    (Engine.VLLM, "0.8.5"),
    (Engine.VLLM, "0.16.0"),
    (Engine.VLLM, "0.19.0"),
    (Engine.VLLM, None),
    (Engine.SGLANG, None),
    (Engine.TENSORRT_LLM, None),
    (Engine.LLAMA_CPP, None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePool:
    """What one engine makes of the same card: its pool per GPU, the tokens that it prints, and its tightest GPU as a bar."""

    engine: Engine
    version: str
    fits: bool
    kv: Estimate
    printed_tokens: int
    tokens: int
    max_concurrency: float
    reason: str
    bar: RankBar


def engine_pools(
    spec: ModelSpec, accelerator: Accelerator, layout: Layout, settings: EngineSettings
) -> tuple[EnginePool, ...]:
    """Every engine that runs on the accelerator, each with its own default share of the memory."""
    found = []
    for engine, version in COMPARED_VERSIONS:
        if not engine_support(engine, accelerator):
            continue
        chosen = replace(settings, engine=engine, version=version, memory_utilization=None)
        result = ledger(spec, accelerator, layout, chosen, nearest=False)
        found.append(
            EnginePool(
                engine=engine,
                version=version or "newest",
                fits=result.verdict.fits,
                kv=result.tightest.kv,
                printed_tokens=result.kv.printed_tokens,
                tokens=result.kv.tokens,
                max_concurrency=result.kv.max_concurrency,
                reason=result.verdict.reason,
                bar=next(bar for bar in rank_bars(result) if bar.tightest),
            )
        )
    return tuple(found)
