"""Causal attention over prompts by backend: FLOP/s of torch's own kernels, each forced in turn, never a silent fallback.

FLOP are 4 B H S^2 D / 2 (causal). What torch reaches here is shown beside an engine's own figure and never replaces it.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from probes.harness import Bench, Case, Measurement, checked

HEADS, HEAD_DIM = 32, 128
CPU_HEADS, CPU_HEAD_DIM = 8, 64
TOKENS = 16_384  # batch x length
QUICK_LENGTHS = (2048, 8192)
FULL_LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384, 32_768)
CPU_QUICK_LENGTHS = (256, 512)
CPU_FULL_LENGTHS = (256, 512, 1024, 2048)
GPU_BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
CPU_BACKENDS = ("FLASH_ATTENTION", "MATH")
CHECKED_LENGTH = 64
TOLERANCE = 3e-2
CHUNK_TOKENS, CHUNK_KEYS = 2048, (8192, 32_768)


def cases(bench: Bench) -> list[Case]:
    """Every backend at every length, short ones first; in full also a chunk of a prompt behind cached tokens."""
    if bench.on_cpu:
        lengths = CPU_QUICK_LENGTHS if bench.quick else CPU_FULL_LENGTHS
    else:
        lengths = QUICK_LENGTHS if bench.quick else FULL_LENGTHS
    found = [
        Case(
            name=f"{backend} causal {length}",
            run=lambda backend=backend, length=length: _measure(bench, backend, length, length),
            parameters={"backend": backend, "tokens": length, "keys": length, "causal": True},
        )
        for length in lengths
        for backend in _backends(bench)
    ]
    if not bench.quick and not bench.on_cpu:
        found += [
            Case(
                name=f"{backend} chunk {CHUNK_TOKENS} of {keys}",
                run=lambda backend=backend, keys=keys: _measure(bench, backend, CHUNK_TOKENS, keys),
                parameters={"backend": backend, "tokens": CHUNK_TOKENS, "keys": keys, "causal": False},
            )
            for keys in CHUNK_KEYS
            for backend in _backends(bench)
        ]
    return found


def _backends(bench: Bench) -> tuple[str, ...]:
    if bench.on_cpu:
        return CPU_BACKENDS if not bench.quick else CPU_BACKENDS[:1]
    if bench.device.kind in {"cuda", "rocm"}:
        return GPU_BACKENDS
    return ("MATH",) if bench.device.kind == "xpu" else ("OVERRIDEABLE",)


def _measure(bench: Bench, backend: str, tokens: int, keys: int) -> Measurement:
    heads, dim = (CPU_HEADS, CPU_HEAD_DIM) if bench.on_cpu else (HEADS, HEAD_DIM)
    batch = 1 if bench.on_cpu else max(1, TOKENS // max(tokens, keys))
    form = torch.float16 if bench.device.sixteen_bit == "fp16" else torch.bfloat16
    query = bench.randn(batch, heads, tokens, dim, dtype=form)
    key, value = (bench.randn(batch, heads, keys, dim, dtype=form) for _ in range(2))
    causal = tokens == keys

    def attend() -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=causal)

    with _forced(bench, backend):
        error = _check(query, key, value, attend(), causal=causal)
        timing = bench.time([attend])
    pairs = tokens * keys / (2 if causal else 1)
    flop = 4.0 * batch * heads * dim * pairs
    return Measurement(
        value=flop / timing.median_s,
        unit="FLOP/s",
        timing=timing,
        flop_per_call=flop,
        error=error,
        extra={"batch": batch, "heads": heads, "head_dim": dim, "best": flop / timing.best_s},
    )


def _forced(bench: Bench, backend: str) -> sdpa_kernel:
    """Only this backend: torch raises where it cannot take the operands. MPS has one kernel and no choice."""
    if bench.device.kind == "mps":
        return sdpa_kernel([SDPBackend.OVERRIDEABLE, SDPBackend.MATH])
    return sdpa_kernel([SDPBackend.__members__[backend]])


def _check(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, got: torch.Tensor, *, causal: bool
) -> float:
    """The first head's last queries against fp32."""
    length, keys = query.shape[2], key.shape[2]
    rows = min(CHECKED_LENGTH, length)
    q = query[:1, :1, -rows:].float().cpu()
    k, v = key[:1, :1].float().cpu(), value[:1, :1].float().cpu()
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        position = torch.arange(length - rows, length)[:, None]
        scores = scores.masked_fill(torch.arange(keys)[None, :] > position, float("-inf"))
    expected = torch.softmax(scores, dim=-1) @ v
    return checked(got[:1, :1, -rows:].cpu(), expected, tolerance=TOLERANCE)
