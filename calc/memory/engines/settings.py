"""What a person tells an engine at start: `EngineSettings`."""

from __future__ import annotations

from dataclasses import dataclass

from calc.engine import Engine
from calc.errors import InputError
from calc.model import ModelSpec

STATE_FORMATS = ("fp32", "bf16", "fp16", "fp8")
MAX_TOKENS = 1_000_000_000
VLLM_BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
"""Tokens of a block that `--block-size` takes: `BlockSize` of vllm/config/cache.py (read 2026-11-30). Releases that
check no list leave the choice to the attention kernel, whose usual sizes are these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Start-up settings of one engine; None means the engine's own default for its version and the card.

    Counts of tokens and sequences are those of one attention rank's scheduler; `calc.memory.flag_scope` turns them into
    what a flag says.

    memory_utilization: vLLM's share of the card, SGLang's static fraction, TensorRT-LLM's share of what is free.
    max_batched_tokens: vLLM's token budget of a step, SGLang's prefill chunk, llama.cpp's micro batch (`n_ubatch`).
    max_seqs: most sequences at once; llama.cpp's parallel slots. state_slots: SGLang's slots of recurrent state.
    quantization: what-if weight format; None keeps the checkpoint's own. kv_dtype: None is the engine's "auto".
    device_memory_bytes: memory as the CUDA runtime totals it. available_kv_bytes: skips the ledger; the KV arithmetic
    alone is tested on that many bytes per GPU.
    """

    engine: Engine = Engine.VLLM
    version: str | None = None
    memory_utilization: float | None = None
    max_model_len: int | None = None
    max_batched_tokens: int | None = None
    max_seqs: int | None = None
    block_size: int | None = None
    kv_dtype: str | None = None
    quantization: str | None = None
    device_memory_bytes: float | None = None
    available_kv_bytes: float | None = None

    adapters: int = (
        0  # LoRA adapters kept loaded: a line of vLLM's ledger; `calc.expected` counts them for other engines
    )
    adapter_rank: int = 16

    role: str = ""  # "prefill" or "decode" of a server that does one of the two; empty: both
    # Host memory behind each GPU for text that returns; None: none.
    host_cache_bytes_per_gpu: float | None = None

    # vLLM
    legacy_engine: bool | None = None  # the V0 engine; None: by version
    offline: bool = False  # the LLM class instead of the API server: other default batch sizes
    enforce_eager: bool = False
    chunked_prefill: bool | None = None  # None: always in V1; in V0 only above 32k
    prefix_caching: bool | None = None  # None: on, except for recurrent models before 0.21
    state_dtype: str | None = None  # format of recurrent states; None: the model's
    mxfp4_kernel: str | None = None  # "triton" or "marlin"; None: by card
    subtract_graphs: bool | None = None  # the CUDA graph estimate; None: by version
    hybrid_cache: bool | None = None  # separate groups for windows and states; None: by version
    decode_context_parallel: int = 1
    encoder_tokens: int | None = None  # cached by cross attention; None: as many as the context
    image_items: int | None = None  # images in the profiling pass; None: by budget, 0: towers are skipped
    light_sampler: bool | None = (
        None  # FlashInfer's sampler before 0.17 (the official image); None: by version
    )
    graph_sizes: int | None = None  # batch sizes captured as CUDA graphs; None: the engine's list

    # speculative decoding
    draft_tokens: int = 0
    draft_layers: int = 0  # further attention layers, as wide as the model's own, that a drafter brings
    # The checkpoint's own prediction layers draft; None: where drafts are asked for and it has some.
    mtp: bool | None = None
    drafter: ModelSpec | None = None  # a drafting model of its own

    # SGLang
    # Tokens of the sliding pool over the full pool's; None: 0.8, DeepSeek-V4 0.1.
    window_pool_ratio: float | None = None
    state_memory_ratio: float = 0.9  # memory of recurrent states over memory of the KV cache
    state_slots: int | None = None  # `max_mamba_cache_size`
    free_memory_bytes: float | None = None  # free before loading, where it is not the whole card

    # llama.cpp
    gpu_layers: int | None = None  # layers on the GPU; None: all
    unified_cache: bool = True  # one pool of cells for all slots
    full_window_cache: bool = False  # `--swa-full`
    flash_attention: bool = True

    def __post_init__(self) -> None:
        self._check_fractions()
        self._check_counts()
        for name in ("device_memory_bytes", "free_memory_bytes"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e15:
                raise InputError(name, value, "it must be a positive number of bytes")
        if self.state_dtype not in (None, *STATE_FORMATS):
            raise InputError("state_dtype", self.state_dtype, f"it must be one of {', '.join(STATE_FORMATS)}")
        if self.available_kv_bytes is not None and not -1e15 < self.available_kv_bytes < 1e15:
            raise InputError("available_kv_bytes", self.available_kv_bytes, "it must be a number of bytes")

    def _check_counts(self) -> None:
        for name in ("max_model_len", "max_batched_tokens", "max_seqs", "block_size"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and 1 <= value <= MAX_TOKENS):
                raise InputError(name, value, f"it must be a whole number from 1 to {MAX_TOKENS:,}")
        if (
            self.engine is Engine.VLLM
            and self.block_size is not None
            and self.block_size not in VLLM_BLOCK_SIZES
        ):
            sizes = ", ".join(map(str, VLLM_BLOCK_SIZES))
            raise InputError("block_size", self.block_size, f"vLLM takes blocks of {sizes} tokens")
        for name in ("draft_tokens", "draft_layers", "adapters", "image_items"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1000:
                raise InputError(name, value, "it must be a whole number from 0 to 1,000")
        for name, most in (("decode_context_parallel", 1024), ("adapter_rank", 4096)):
            if not 1 <= getattr(self, name) <= most:
                raise InputError(name, getattr(self, name), f"it must be 1 to {most:,}")

    def _check_fractions(self) -> None:
        if self.memory_utilization is not None and not 0 < self.memory_utilization <= 1:
            raise InputError("memory_utilization", self.memory_utilization, "it must lie above 0 and up to 1")
        for name in ("window_pool_ratio", "state_memory_ratio"):
            ratio = getattr(self, name)
            if ratio is not None and not 0 < ratio <= 100:
                raise InputError(name, ratio, "it must be a positive ratio")
