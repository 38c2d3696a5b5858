"""Which ranks an engine's count speaks of: `FLAG_SCOPES`, and the value to type for what one rank is meant to do.

Ranks that hold whole attention schedule their own sequences. Most flags are what each of them does; SGLang divides some
of its flags by its ranks of data-parallel attention first. Settings and step times here are always those of one rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from calc.engine import Engine
from calc.layout import Layout


class Scope(StrEnum):
    """What one flag's number is counted over."""

    RANK = "each attention rank"
    ATTENTION_DP = "all ranks of data-parallel attention together: the engine divides it by their number"


_RANK, _SHARED = Scope.RANK, Scope.ATTENTION_DP

FLAG_SCOPES: Final[Mapping[Engine, Mapping[str, Scope]]] = MappingProxyType(
    {
        # docs/serving/data_parallel_deployment.md of vllm-project/vllm, read 2026-11-30: every rank is a core engine with a
        # scheduler and a cache of its own, and "--max-num-seqs applies per DP rank".
        Engine.VLLM: MappingProxyType({"--max-num-batched-tokens": _RANK, "--max-num-seqs": _RANK}),
        # The published wheel of SGLang 0.5.23: handle_data_parallelism of arg_groups/parallel_hook.py (the chunk, after the
        # static fraction was taken from the undivided one), resolve_max_num_reqs and the pools of states in
        # mem_cache/kv_cache_configurator.py; its max_total_tokens and graph batches are not divided there. Replicas of
        # `--dp-size` alone are whole servers: nothing is divided by them.
        Engine.SGLANG: MappingProxyType(
            {
                "--chunked-prefill-size": _SHARED,
                "--max-running-requests": _SHARED,
                "--max-mamba-cache-size": _SHARED,
                "--max-total-tokens": _RANK,
                "--cuda-graph-max-bs-decode": _RANK,
            }
        ),
        # tensorrt_llm/_torch/pyexecutor/py_executor.py of NVIDIA/TensorRT-LLM, read 2026-11-30: with attention DP the
        # replica takes tp_size times the limit of one executor.
        Engine.TENSORRT_LLM: MappingProxyType({"--max_num_tokens": _RANK, "--max_batch_size": _RANK}),
        # One process, one scheduler.
        Engine.LLAMA_CPP: MappingProxyType({"--ubatch-size": _RANK, "--parallel": _RANK}),
        Engine.OLLAMA: MappingProxyType({"OLLAMA_NUM_PARALLEL": _RANK}),
    }
)
CHUNK_FLAG = "--chunked-prefill-size"


def flag_value(engine: Engine, flag: str, of_rank: int | None, layout: Layout) -> int | None:
    """What to type so that each attention rank gets `of_rank`; None stays the engine's default."""
    return None if of_rank is None else of_rank * _divisor(engine, flag, layout)


def rank_value(engine: Engine, flag: str, typed: int, layout: Layout) -> int:
    """What each attention rank gets of a flag's value or default; at least 1."""
    return max(1, typed // _divisor(engine, flag, layout))


def _divisor(engine: Engine, flag: str, layout: Layout) -> int:
    return layout.attention_dp if FLAG_SCOPES[engine][flag] is Scope.ATTENTION_DP else 1


def default_step_tokens(engine: str, tokens: int, layout: Layout) -> int:
    """Tokens of one rank's step where the engine's default for the server is `tokens` and no budget is typed."""
    return rank_value(Engine.SGLANG, CHUNK_FLAG, tokens, layout) if engine == Engine.SGLANG else tokens
