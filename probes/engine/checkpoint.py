"""Weights by name, out of the safetensors files of a folder. Quantised checkpoints are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from calc.errors import InputError, SourceError, SourceFault
from presets.checkpoint import read_header, weight_files
from probes.engine.shape import DecoderShape

Weights = dict[str, torch.Tensor]

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def load_weights(folder: Path, *, dtype: torch.dtype, device: torch.device) -> Weights:
    """All tensors of a folder's safetensors files, as `dtype` on `device`. Quantised checkpoints are refused."""
    names = weight_files(folder)
    if not names:
        raise InputError("model", str(folder), "the folder holds no safetensors")
    return {
        name: tensor.to(device=device, dtype=dtype)
        for file in names
        for name, tensor in _tensors(folder / file)
    }


def _tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of one file, mapped into memory: the header, then the bytes of all tensors."""
    with path.open("rb") as file:
        begin, tensors = read_header(file, name=str(path))
    data = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
    for tensor in tensors:
        if tensor.format not in DTYPES:
            raise InputError(
                tensor.name,
                tensor.format,
                f"weights must be stored as {', '.join(DTYPES)}",
                next_step="Take the unquantised checkpoint and let the engine quantise it.",
            )
        start = begin + tensor.begin
        stop = start + tensor.stored_bytes
        if stop > len(data):
            raise SourceError(SourceFault.UNREADABLE, f"{path.name} ends before tensor {tensor.name}.")
        yield tensor.name, data[start:stop].clone().view(DTYPES[tensor.format]).reshape(tensor.shape)


def weight_shapes(shape: DecoderShape) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor, as checkpoints of both kinds name them."""
    width, inner = shape.width, shape.intermediate
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (shape.vocabulary, width)}
    for layer in range(shape.layers):
        at = f"model.layers.{layer}."
        matrices = {
            "self_attn.q_proj": (query, width, shape.attention_bias),
            "self_attn.k_proj": (key, width, shape.attention_bias),
            "self_attn.v_proj": (key, width, shape.attention_bias),
            "self_attn.o_proj": (width, query, shape.attention_bias),
            "mlp.gate_proj": (inner, width, shape.mlp_bias),
            "mlp.up_proj": (inner, width, shape.mlp_bias),
            "mlp.down_proj": (width, inner, shape.mlp_bias),
        }
        for name, (rows, columns, bias) in matrices.items():
            found[f"{at}{name}.weight"] = (rows, columns)
            if bias:
                found[f"{at}{name}.bias"] = (rows,)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}{name}.weight"] = (width,)
        if shape.qk_norm:
            for name in ("q_norm", "k_norm"):
                found[f"{at}self_attn.{name}.weight"] = (shape.head_dim,)
    found["model.norm.weight"] = (width,)
    if not shape.tied:
        found["lm_head.weight"] = (shape.vocabulary, width)
    return found
