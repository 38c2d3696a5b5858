"""What trtllm-bench sets for a throughput run when nobody says otherwise: sequences and tokens of a step, sizes of graphs.

Restated from NVIDIA/TensorRT-LLM (Apache-2.0), tensorrt_llm/bench/build/tuning.py (`calc_engine_setting`, `finetune_setting`) and
dataclasses.py, and tensorrt_llm/_torch/pyexecutor/model_engine.py (`_filter_cuda_graph_batch_sizes`), as of 1.0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from calc.model import Attention, ModelSpec
from calc.quantization import FORMATS, weight_bytes
from calc.step import StepModel

CACHE_SHARE: Final = 0.95  # of what is free after loading, as NVIDIA's pages set it
MOST_SEQUENCES: Final = 4096
LEAST_SEQUENCES: Final = 64
LEAST_TOKENS: Final = 2048  # "to ensure Ctx/Gen overlap efficiency"
MOST_TOKENS: Final = 32_768
GRAPH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 1024, 2048, 4096, 8192)
"""Sequences of the graphs that both of NVIDIA's pages ask for, with padding (`cuda_graph_config` of their llm_options.yml)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSettings:
    """Most sequences of a scheduler (an attention rank, or a micro-batch of a pipeline), and most tokens of its step."""

    sequences: int
    tokens: int

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Sizes that decode steps are padded to: those asked for, up to the most sequences, which stands for the larger ones."""
        most = min(self.sequences, self.tokens)
        return (*(size for size in GRAPH_SIZES if size < most), most)


def bench_settings(
    model: StepModel, *, input_tokens: float, output_tokens: float, held: float
) -> BenchSettings:
    """The settings for a model on its layout. Attention ranks each get as many sequences as the whole group was thought to hold.

    `held`: sequences of a scheduler that its cache really holds. They stand for the estimate where latents are cached: the
    rule would count 25 times their bytes, and NVIDIA's guide for such a model states the sequences (`--max_batch_size`).
    """
    requests = guessed_requests(model, tokens=input_tokens + output_tokens)
    own = held if requests is None else requests / model.layout.pp
    return finetuned(own, input_tokens=input_tokens, output_tokens=output_tokens)


def guessed_requests(model: StepModel, *, tokens: float) -> float | None:
    """Requests of so many tokens that the benchmark thinks the caches of a replica hold; None where it counts no such cache."""
    layout = model.layout
    per_token = _guessed_token_bytes(model.spec, ranks=layout.tp, kv_dtype=model.kv_dtype)
    if per_token is None:
        return None
    total = float(model.accelerator.cuda_memory.best) * layout.tp * layout.pp
    free = max(total - _guessed_weights(model.spec, model.quantization), 0.0)
    return CACHE_SHARE * free / (per_token * tokens)


def finetuned(requests: float, *, input_tokens: float, output_tokens: float) -> BenchSettings:
    """Settings for so many requests that the cache is thought to hold, rounded up as the benchmark does."""
    sequences = min(requests, float(MOST_SEQUENCES))
    tokens = min(sequences * (1.0 + input_tokens / output_tokens), float(MOST_TOKENS))
    size_step = 32 if sequences < 256 else 128 if sequences < 1024 else 256
    token_step = 256 if tokens < 4096 else 512 if tokens < 8192 else 1024
    return BenchSettings(
        sequences=max(LEAST_SEQUENCES, size_step * math.ceil(sequences / size_step)),
        tokens=max(LEAST_TOKENS, token_step * math.ceil(tokens / token_step)),
    )


def _guessed_weights(spec: ModelSpec, quantization: str | None) -> float:
    """Bytes of the weights as the benchmark guesses them: stored elements, all at the size of the format's own.

    Formats under 8 bits are stored packed, so that an element is a byte of values or of scales; the guess then takes half a
    byte for NVFP4, and two for MXFP4, which it does not know.
    """
    by_format = weight_bytes(spec, quantization).by_format
    elements = sum(
        stored / (FORMATS[name].bits / 8.0 if FORMATS[name].bits >= 8 else 1.0)
        for name, stored in by_format.items()
    )
    if "nvfp4" in by_format:
        return 0.5 * elements
    return elements * (1.0 if any(name.startswith("fp8") for name in by_format) else 2.0)


def _guessed_token_bytes(spec: ModelSpec, *, ranks: int, kv_dtype: str) -> float | None:
    """Bytes of a cached token over all ranks as the benchmark guesses them, every layer in full; None for latents."""
    first = next((s for _, s in spec.decoder_sublayers() if isinstance(s, Attention)), None)
    if first is None or spec.decoder is None:
        return None
    heads = max(first.n_kv_heads, ranks)
    return 2.0 * spec.decoder.n_layers * heads * first.head_dim * (1.0 if kv_dtype == "fp8" else 2.0)
