"""One decoder layer of the chosen model with random weights, in decode and prefill: what the parts cost together.

Norm, projections, rotary positions, cache write, attention, output, feed-forward or routed experts, as torch runs them
eagerly (in a graph where the device has graphs). Enough copies of the layer are made that their weights exceed the last
cache. The sum of the parts is worked out beside it by the step model; where the two differ, that is shown, not corrected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from probes.harness import Bench, Case, Measurement, WrongAnswerError

Layer = Callable[[torch.Tensor], torch.Tensor]

DECODE_QUICK = (1, 32)
DECODE_FULL = (1, 4, 16, 64, 256)
PREFILL_QUICK = (2048,)
PREFILL_FULL = (512, 2048, 8192, 16_384)
CPU_DECODE = {"quick": (1, 4), "full": (1, 4, 16)}
CPU_PREFILL = {"quick": (128,), "full": (128, 512)}
CONTEXT, CPU_CONTEXT = 4096, 1024
MEMORY_SHARE = 0.4
FEWEST_COPIES = 2
ROTARY_BASE = 10_000.0


def cases(bench: Bench) -> list[Case]:
    """Each distinct layer of the model, decode before prefill; none without a model."""
    found = []
    context = CPU_CONTEXT if bench.on_cpu else CONTEXT
    decode = CPU_DECODE[bench.depth] if bench.on_cpu else DECODE_QUICK if bench.quick else DECODE_FULL
    prefill = CPU_PREFILL[bench.depth] if bench.on_cpu else PREFILL_QUICK if bench.quick else PREFILL_FULL
    for index, shape in enumerate((bench.model or {}).get("layers", ())):
        found += [_case(bench, shape, index, batch=batch, new_tokens=1, context=context) for batch in decode]
        found += [_case(bench, shape, index, batch=1, new_tokens=tokens, context=0) for tokens in prefill]
    return found


def _case(
    bench: Bench, shape: dict[str, Any], index: int, *, batch: int, new_tokens: int, context: int
) -> Case:
    phase = "decode" if new_tokens == 1 else "prefill"
    size = f"batch {batch} at {context}" if phase == "decode" else f"{new_tokens} tokens"
    return Case(
        name=f"layer {index} {phase} {size}",
        run=lambda: _measure(bench, shape, batch, new_tokens, context),
        parameters={
            "layer": index,
            "phase": phase,
            "batch": batch,
            "tokens": new_tokens,
            "context": context,
        },
    )


def _measure(bench: Bench, shape: dict[str, Any], batch: int, new_tokens: int, context: int) -> Measurement:
    form = torch.float16 if bench.device.sixteen_bit == "fp16" else torch.bfloat16
    size = weight_bytes(shape)
    room = bench.room_bytes(MEMORY_SHARE)
    if size > room:
        raise RuntimeError(f"one layer takes {size} bytes, and {room} may be used")
    copies = min(max(FEWEST_COPIES, bench.rotation(size)), max(1, room // size))
    layers = [
        build(bench, shape, form, batch=batch, new_tokens=new_tokens, context=context) for _ in range(copies)
    ]
    x = bench.randn(batch, new_tokens, shape["width"], dtype=form)
    result = layers[0](x)
    if result.shape != x.shape or not bool(torch.isfinite(result).all()):
        raise WrongAnswerError("the layer's result is not a finite tensor of its input's shape")
    timing = bench.time([lambda layer=layer: layer(x) for layer in layers])
    return Measurement(
        value=timing.median_s,
        unit="s",
        timing=timing,
        bytes_per_call=float(size),
        extra={"copies": copies},
    )


def weight_bytes(shape: dict[str, Any]) -> int:
    """16-bit bytes of a layer's matrices."""
    return 2 * sum(_elements(part, shape["width"]) for part in shape["sublayers"])


def _elements(part: dict[str, Any], width: int) -> int:
    match part["kind"]:
        case "attention":
            heads, groups = part["n_heads"], part["n_kv_heads"]
            keys, values = part["head_dim"], part["value_head_dim"]
            return width * (heads * keys + groups * (keys + values) + heads * values)
        case "latent attention":
            heads, rank, rope = part["n_heads"], part["kv_lora_rank"], part["rope_dim"]
            query_in = part["q_lora_rank"] or width
            head = part["nope_dim"] + rope
            down = width * part["q_lora_rank"] if part["q_lora_rank"] else 0
            up = rank * heads * (part["nope_dim"] + part["value_dim"])
            return (
                down
                + query_in * heads * head
                + width * (rank + rope)
                + up
                + heads * part["value_dim"] * width
            )
        case "mlp":
            return (3 if part["gated"] else 2) * width * part["intermediate"]
        case _:
            matrices = 3 if part["gated"] else 2
            experts = part["n_experts"] * part["expert_intermediate"] + part["shared_intermediate"]
            return width * (matrices * experts + part["n_experts"])


def build(
    bench: Bench, shape: dict[str, Any], form: torch.dtype, *, batch: int, new_tokens: int, context: int
) -> Layer:
    """The layer as one call on (batch, new tokens, width)."""
    width = shape["width"]
    norm = torch.ones(width, dtype=form, device=bench.device.device)
    parts: list[Layer] = []
    for part in shape["sublayers"]:
        if part["kind"] == "attention":
            parts.append(
                _attention(bench, part, width, form, batch=batch, new_tokens=new_tokens, context=context)
            )
        elif part["kind"] == "latent attention":
            parts.append(
                _latent(bench, part, width, form, batch=batch, new_tokens=new_tokens, context=context)
            )
        elif part["kind"] == "mlp":
            parts.append(_mlp(bench, width, part["intermediate"], form, gated=part["gated"]))
        else:
            parts.append(_moe(bench, part, width, form))

    def run(x: torch.Tensor) -> torch.Tensor:
        for part in parts:
            x = x + part(functional.rms_norm(x, (width,), norm))
        return x

    return run


def _matrix(bench: Bench, rows: int, columns: int, form: torch.dtype) -> torch.Tensor:
    return bench.randn(rows, columns, dtype=form, scale=columns**-0.5)


def _rotary(
    bench: Bench, positions: int, start: int, dim: int, form: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    frequency = 1.0 / ROTARY_BASE ** (torch.arange(0, dim, 2).float() / dim)
    angle = torch.arange(start, start + positions).float()[:, None] * frequency[None, :]
    device = bench.device.device
    return angle.cos().to(form).to(device), angle.sin().to(form).to(device)


def _rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def _attention(
    bench: Bench,
    part: dict[str, Any],
    width: int,
    form: torch.dtype,
    *,
    batch: int,
    new_tokens: int,
    context: int,
) -> Layer:
    heads, groups, dim, value_dim = (
        part[name] for name in ("n_heads", "n_kv_heads", "head_dim", "value_head_dim")
    )
    projection = _matrix(bench, heads * dim + groups * (dim + value_dim), width, form)
    output = _matrix(bench, width, heads * value_dim, form)
    cached = min(context, part["window"] or context)
    keys = bench.randn(batch, groups, cached + new_tokens, dim, dtype=form)
    values = bench.randn(batch, groups, cached + new_tokens, value_dim, dtype=form)
    cosine, sine = _rotary(bench, new_tokens, cached, dim, form)
    sizes = (heads * dim, groups * dim, groups * value_dim)

    def run(x: torch.Tensor) -> torch.Tensor:
        query, key, value = functional.linear(x, projection).split(sizes, dim=-1)
        query = _rotate(query.unflatten(-1, (heads, dim)).transpose(1, 2), cosine, sine)
        key = _rotate(key.unflatten(-1, (groups, dim)).transpose(1, 2), cosine, sine)
        keys[:, :, cached:] = key
        values[:, :, cached:] = value.unflatten(-1, (groups, value_dim)).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(
            query, keys, values, is_causal=new_tokens > 1, enable_gqa=heads != groups
        )
        return functional.linear(mixed.transpose(1, 2).flatten(2), output)

    return run


def _latent(
    bench: Bench,
    part: dict[str, Any],
    width: int,
    form: torch.dtype,
    *,
    batch: int,
    new_tokens: int,
    context: int,
) -> Layer:
    """MLA. Decode absorbs the up-projections into query and output, so that all heads read one latent cache."""
    heads, rank, rope = part["n_heads"], part["kv_lora_rank"], part["rope_dim"]
    nope, value_dim, query_rank = part["nope_dim"], part["value_dim"], part["q_lora_rank"]
    query_down = _matrix(bench, query_rank, width, form) if query_rank else None
    query_up = _matrix(bench, heads * (nope + rope), query_rank or width, form)
    down = _matrix(bench, rank + rope, width, form)
    key_up = bench.randn(heads, nope, rank, dtype=form, scale=rank**-0.5)
    value_up = bench.randn(heads, value_dim, rank, dtype=form, scale=rank**-0.5)
    output = _matrix(bench, width, heads * value_dim, form)
    cache = bench.randn(batch, context + new_tokens, rank + rope, dtype=form)
    cosine, sine = _rotary(bench, new_tokens, context, rope, form)
    scale = (nope + rope) ** -0.5

    def run(x: torch.Tensor) -> torch.Tensor:
        low = functional.linear(x, query_down) if query_down is not None else x
        query = functional.linear(low, query_up).unflatten(-1, (heads, nope + rope)).transpose(1, 2)
        plain, turned = query.split((nope, rope), dim=-1)
        turned = _rotate(turned, cosine, sine)
        latent, shared = functional.linear(x, down).split((rank, rope), dim=-1)
        cache[:, context:] = torch.cat((latent, _rotate(shared, cosine, sine)), dim=-1)
        if new_tokens == 1:
            absorbed = torch.cat((torch.einsum("bhtn,hnr->bhtr", plain, key_up), turned), dim=-1)
            weights = torch.softmax(torch.matmul(absorbed, cache.unsqueeze(1).mT) * scale, dim=-1)
            seen = torch.matmul(weights, cache.unsqueeze(1)[..., :rank])
            mixed = torch.einsum("bhtr,hvr->bhtv", seen, value_up)
        else:
            keys = torch.einsum("btr,hnr->bhtn", latent, key_up)
            shared_keys = cache[:, None, :, rank:].expand(-1, heads, -1, -1)
            values = torch.einsum("btr,hvr->bhtv", latent, value_up)
            mixed = functional.scaled_dot_product_attention(
                torch.cat((plain, turned), dim=-1),
                torch.cat((keys, shared_keys), dim=-1),
                values,
                is_causal=True,
                scale=scale,
            )
        return functional.linear(mixed.transpose(1, 2).flatten(2), output)

    return run


def _mlp(bench: Bench, width: int, intermediate: int, form: torch.dtype, *, gated: bool) -> Layer:
    up = _matrix(bench, intermediate * (2 if gated else 1), width, form)
    down = _matrix(bench, width, intermediate, form)

    def run(x: torch.Tensor) -> torch.Tensor:
        wide = functional.linear(x, up)
        if gated:
            gate, wide = wide.chunk(2, dim=-1)
            wide = functional.silu(gate) * wide
        else:
            wide = functional.gelu(wide)
        return functional.linear(wide, down)

    return run


def _moe(bench: Bench, part: dict[str, Any], width: int, form: torch.dtype) -> Layer:
    """Router, top-k experts, shared experts. Few pairs gather their experts; many run expert by expert over padded rows.

    Both ways have fixed shapes, so that a graph can hold them; engines use grouped kernels, which torch has not.
    """
    experts, top_k, wide = part["n_experts"], part["top_k"], part["expert_intermediate"]
    router = _matrix(bench, experts, width, form)
    up = bench.randn(experts, wide * (2 if part["gated"] else 1), width, dtype=form, scale=width**-0.5)
    down = bench.randn(experts, width, wide, dtype=form, scale=wide**-0.5)
    shared = (
        _mlp(bench, width, part["shared_intermediate"], form, gated=part["gated"])
        if part["shared_intermediate"]
        else None
    )

    def activated(hidden: torch.Tensor) -> torch.Tensor:
        if not part["gated"]:
            return functional.gelu(hidden)
        gate, value = hidden.chunk(2, dim=-1)
        return functional.silu(gate) * value

    def run(x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, 1)
        weights, chosen = torch.topk(torch.softmax(functional.linear(flat, router), dim=-1), top_k, dim=-1)
        if flat.shape[0] * top_k <= experts:
            hidden = torch.einsum("tkow,tw->tko", up[chosen], flat)
            mixed = torch.einsum("tkwo,tko,tk->tw", down[chosen], activated(hidden), weights)
        else:
            share = torch.zeros(flat.shape[0], experts, dtype=form, device=flat.device)
            share.scatter_(1, chosen, weights)
            rows = min(flat.shape[0], -(-2 * flat.shape[0] * top_k // experts))
            mixed = torch.zeros_like(flat)
            for expert in range(experts):
                gate, index = share[:, expert].topk(rows)
                result = functional.linear(
                    activated(functional.linear(flat[index], up[expert])), down[expert]
                )
                mixed.index_add_(0, index, result * gate[:, None])
        mixed = mixed.unflatten(0, x.shape[:2])
        return mixed + shared(x) if shared is not None else mixed

    return run
