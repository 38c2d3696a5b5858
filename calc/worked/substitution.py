"""The numbers of an answer by the names that formulas give them, so that every step can print its own arithmetic."""

from __future__ import annotations

from calc.memory.kv import sequence_bytes
from calc.parameters import count_parameters
from calc.result import Answer
from calc.scenario import Traffic
from calc.sizing import BLOCK_TOKENS

STEP_FORMULAS: dict[str, tuple[str, ...]] = {
    "memory": ("cache_bytes", "tokens_that_fit"),
    "sequences": ("sequences_paged", "sequences_reserved"),
    "decode": ("decode_step_s", "tokens_per_s"),
    "prefill": ("prefill_s",),
    "fleet": ("e2e_s", "requests_in_system", "prefill_gpus", "decode_gpus", "gpus_to_buy"),
}
"""Formula ids of the textbook's five steps, in the order in which they are worked."""


def symbols_of(result: Answer, step: str) -> dict[str, float]:
    """Every symbol that the answer has reached, as plain numbers; a replica's GPUs count as one device.

    `step` (a key of `STEP_FORMULAS`): the cache per token differs between a sequence at its end (memory) and halfway
    (decode) where layers have windows.

    Sizing works on a whole replica: bandwidth, peak and memory are those of its GPUs together, and `prefill_gpus`,
    `decode_gpus` and `gpus_to_buy` count replicas where a replica has more GPUs than one.
    """
    scenario, accelerator = result.inputs.scenario, result.inputs.offer.accelerator
    memory, gpus = result.memory, result.memory.gpus
    active = count_parameters(result.inputs.spec).active
    weights = memory.weight_bytes_per_gpu * gpus
    symbols: dict[str, float] = {
        "params": active,
        "bytes_per_param": weights / active,
        "weight_bytes": weights,
        "memory_bytes": memory.total_bytes_per_gpu * gpus,
        "reserved_bytes": memory.overhead_bytes_per_gpu * gpus,
        "cache_bytes": memory.kv_bytes,
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "tokens": memory.tokens,
        "bandwidth_bytes_per_s": accelerator.bandwidth_bytes_per_s * gpus,
        "peak_flop_per_s": accelerator.flop_per_s_16bit.flop_per_s * gpus,
        "mfu": scenario.mfu,
        "block_size": BLOCK_TOKENS,
        "headroom": scenario.headroom,
        "output_tokens": scenario.output_tokens,
        "prompt_tokens": scenario.input_tokens,
    }
    if result.sequences is not None:
        symbols["sequence_tokens"] = result.sequences.kept_tokens
        symbols["reserved_tokens"] = max(result.sequences.kept_tokens, result.sequences.reserved_tokens)
    if result.decode is not None:
        step_s = float(result.decode.time.step_s.best)
        symbols |= {
            "batch": result.decode.batch,
            "context": result.decode.context_tokens,
            "step_s": step_s,
            "tpot_s": step_s,
            "tokens_per_s": result.decode.tokens_per_s,
        }
        if step == "decode":
            symbols["kv_bytes_per_token"] = _kv_bytes_per_token(result, result.decode.context_tokens)
    if result.prefill is not None:
        prefill_s = float(result.prefill.prefill_s.best)
        symbols |= {
            "cached_tokens": result.prefill.cached_tokens,
            "prefill_s": prefill_s,
            "ttft_s": prefill_s,
        }
    if result.fleet is not None:
        symbols |= {
            "rate_per_s": result.fleet.rate_per_s,
            "arrivals_per_s": result.fleet.rate_per_s,
            "time_in_system_s": float(result.fleet.e2e_s.best),
            "busy_gpus": result.fleet.busy,
        }
    return symbols


def formulas_of(result: Answer, step: str) -> tuple[str, ...]:
    """Formula ids that this answer's step really used: a cache size that the user gave is not computed."""
    ids = STEP_FORMULAS[step]
    if result.inputs.scenario.kv_bytes_per_gpu is not None or result.memory.kv_copies > 1:
        ids = tuple(one for one in ids if one != "cache_bytes")
    if step == "fleet" and result.inputs.scenario.traffic == Traffic.USERS:
        ids = ("e2e_s", "requests_in_system", "gpus_to_buy")
    return ids


def _kv_bytes_per_token(result: Answer, context_tokens: float) -> float:
    spec, kv_dtype = result.inputs.spec, result.inputs.scenario.kv_format
    return sequence_bytes(spec, round(context_tokens), kv_dtype) / context_tokens
