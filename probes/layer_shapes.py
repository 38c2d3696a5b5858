"""A model's decoder layers as plain dictionaries that a worker can build with random weights. No torch here.

One entry per distinct layer, with how many layers are like it. Layers with a part that the probe does not build (a
recurrent mixer, compressed or cross attention, an indexer) are refused by the name of that part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from calc.errors import ProbeError
from calc.model import Attention, Block, LatentAttention, Mlp, ModelSpec, Moe, Run, Sublayer


def layers_of(spec: ModelSpec) -> list[dict[str, Any]]:
    """Distinct decoder layers with their counts; raises `ProbeError` where the model has no decoder or none can be built."""
    decoder = spec.decoder
    if decoder is None:
        raise ProbeError(f"{spec.id} has no decoder, so there is no layer to measure.")
    found: list[dict[str, Any]] = []
    refused: list[str] = []
    for run in decoder.runs:
        sublayers = [_sublayer(sublayer) for sublayer in run.block.sublayers]
        missing = [str(part["kind"]) for part in sublayers if part["refused"]]
        if missing:
            refused += missing
            continue
        same = next((layer for layer in found if layer["sublayers"] == sublayers), None)
        if same is None:
            found.append({"count": run.count, "width": decoder.width, "sublayers": sublayers})
        else:
            same["count"] += run.count
    if not found:
        raise ProbeError(
            f"The layers of {spec.id} have {', '.join(sorted(set(refused)))}, which the layer probe does not build.",
            next_step="Everything else is measured; the layer is left out.",
        )
    return found


def _sublayer(sublayer: Sublayer) -> dict[str, Any]:
    match sublayer:
        case Attention(indexer=None, cross=False, causal=True):
            return {
                "kind": "attention",
                "n_heads": sublayer.n_heads,
                "n_kv_heads": sublayer.n_kv_heads,
                "head_dim": sublayer.head_dim,
                "value_head_dim": sublayer.value_head_dim or sublayer.head_dim,
                "window": sublayer.window or sublayer.chunk,
                "refused": False,
            }
        case LatentAttention(indexer=None):
            return {
                "kind": "latent attention",
                "n_heads": sublayer.n_heads,
                "kv_lora_rank": sublayer.kv_lora_rank,
                "q_lora_rank": sublayer.q_lora_rank,
                "rope_dim": sublayer.rope_dim,
                "nope_dim": sublayer.nope_dim,
                "value_dim": sublayer.value_dim,
                "refused": False,
            }
        case Mlp():
            return {
                "kind": "mlp",
                "intermediate": sublayer.intermediate,
                "gated": sublayer.gated,
                "refused": False,
            }
        case Moe():
            return {
                "kind": "moe",
                "n_experts": sublayer.n_experts,
                "top_k": sublayer.top_k,
                "expert_intermediate": sublayer.expert_intermediate,
                "shared_intermediate": sublayer.shared_intermediate,
                "gated": sublayer.gated,
                "refused": False,
            }
        case _:
            return {"kind": type(sublayer).__name__, "refused": True}


def one_layer(spec: ModelSpec, index: int = 0) -> ModelSpec:
    """The model cut down to one of its distinct, buildable decoder layers, without embeddings and output head."""
    decoder = spec.decoder
    if decoder is None:
        raise ProbeError(f"{spec.id} has no decoder, so there is no layer to measure.")
    blocks: list[Block] = []
    seen: list[list[dict[str, Any]]] = []
    for run in decoder.runs:
        sublayers = [_sublayer(sublayer) for sublayer in run.block.sublayers]
        if sublayers not in seen and not any(part["refused"] for part in sublayers):
            seen.append(sublayers)
            blocks.append(run.block)
    stack = replace(decoder, runs=(Run(count=1, block=blocks[index]),), weights=())
    return replace(spec, embeddings=(), lm_head=(), stacks=(stack,))
