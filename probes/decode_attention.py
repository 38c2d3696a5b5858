"""Attention of one new token per sequence over its cache (grouped queries): bytes of keys and values read per second.

Two ways, the better one counts: torch's own attention with grouped heads, and two batched products around a softmax.
Bytes are 2 x batch x context x KV heads x head dim x bytes per element; the cache rotates past the last cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional

from probes.harness import Bench, Case, Measurement, checked

HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
CPU_HEADS, CPU_KV_HEADS, CPU_HEAD_DIM = 16, 4, 64
QUICK = ((1, 32_768), (32, 4096))
FULL = tuple((batch, context) for context in (1024, 4096, 16_384, 65_536) for batch in (1, 4, 16, 64, 256))
CPU_QUICK = ((1, 4096), (8, 2048))
CPU_FULL = ((1, 1024), (1, 4096), (4, 4096), (16, 2048), (1, 16_384))
CACHE_SHARE = 0.4
ELEMENT_BYTES = 2
TOLERANCE = 3e-2


def cases(bench: Bench) -> list[Case]:
    """Both ways at every batch and context that fits in 40% of the free memory, small ones first."""
    quick, full = (CPU_QUICK, CPU_FULL) if bench.on_cpu else (QUICK, FULL)
    points = quick if bench.quick else full
    room = bench.room_bytes(CACHE_SHARE)
    return [
        Case(
            name=f"{way} {batch} x {context}",
            run=lambda way=way, batch=batch, context=context: _measure(bench, way, batch, context),
            parameters={"way": way, "batch": batch, "context": context},
        )
        for batch, context in sorted(points, key=math.prod)
        if cache_bytes(bench, batch, context) <= room
        for way in ("sdpa", "grouped products")
    ]


def cache_bytes(bench: Bench, batch: int, context: int) -> int:
    """Bytes of keys and values of a batch."""
    kv_heads, dim = (CPU_KV_HEADS, CPU_HEAD_DIM) if bench.on_cpu else (KV_HEADS, HEAD_DIM)
    return 2 * batch * context * kv_heads * dim * ELEMENT_BYTES


def _measure(bench: Bench, way: str, batch: int, context: int) -> Measurement:
    heads, kv_heads, dim = (
        (CPU_HEADS, CPU_KV_HEADS, CPU_HEAD_DIM) if bench.on_cpu else (HEADS, KV_HEADS, HEAD_DIM)
    )
    form = torch.float16 if bench.device.sixteen_bit == "fp16" else torch.bfloat16
    query = bench.randn(batch, heads, 1, dim, dtype=form)
    cached = bench.copies(bench.randn(2, batch, kv_heads, context, dim, dtype=form))
    attend = _sdpa if way == "sdpa" else _grouped
    error = _check(query, cached[0], attend(query, cached[0]))
    calls: list[Callable[[], torch.Tensor]] = [lambda kv=kv: attend(query, kv) for kv in cached]
    timing = bench.time(calls)
    moved = float(cache_bytes(bench, batch, context))
    return Measurement(
        value=moved / timing.median_s,
        unit="B/s",
        timing=timing,
        bytes_per_call=moved,
        error=error,
        extra={"heads": heads, "kv_heads": kv_heads, "head_dim": dim, "copies": len(cached)},
    )


def _sdpa(query: torch.Tensor, cached: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(query, cached[0], cached[1], enable_gqa=True)


def _grouped(query: torch.Tensor, cached: torch.Tensor) -> torch.Tensor:
    batch, heads, _, dim = query.shape
    kv_heads, context = cached.shape[2], cached.shape[3]
    grouped = query.reshape(batch * kv_heads, heads // kv_heads, dim)
    keys = cached[0].reshape(batch * kv_heads, context, dim)
    values = cached[1].reshape(batch * kv_heads, context, dim)
    scores = torch.bmm(grouped, keys.transpose(1, 2)) / math.sqrt(dim)
    return torch.bmm(torch.softmax(scores, dim=-1), values).reshape(batch, heads, 1, dim)


def _check(query: torch.Tensor, cached: torch.Tensor, got: torch.Tensor) -> float:
    group = query.shape[1] // cached.shape[2]
    q = query[:1, :group].float().cpu()
    k, v = cached[0, :1, :1].float().cpu(), cached[1, :1, :1].float().cpu()
    expected = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), dim=-1) @ v
    return checked(got[:1, :group].cpu(), expected, tolerance=TOLERANCE)
