"""Weights by name, out of the safetensors files of a folder. Quantised checkpoints are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch

from calc.errors import InputError, SourceError, SourceFault
from presets.checkpoint import INDEX_FILE, LENGTH_BYTES, SINGLE_FILE, header_length, shards_of
from probes.engine.shape import DecoderShape

Weights = dict[str, torch.Tensor]

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def load_weights(folder: Path, *, dtype: torch.dtype, device: torch.device) -> Weights:
    """All tensors of a folder's safetensors files, as `dtype` on `device`. Quantised checkpoints are refused."""
    names: tuple[str, ...] = (SINGLE_FILE,)
    if not (folder / SINGLE_FILE).is_file():
        if not (folder / INDEX_FILE).is_file():
            raise InputError("model", str(folder), "the folder holds no safetensors")
        names = shards_of(json.loads((folder / INDEX_FILE).read_bytes()))
    return {
        name: tensor.to(device=device, dtype=dtype)
        for file in names
        for name, tensor in _tensors(folder / file)
    }


def _tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of one file, mapped into memory: the header, then the bytes of all tensors."""
    with path.open("rb") as file:
        length = header_length(file.read(LENGTH_BYTES), file=str(path))
        header = json.loads(file.read(length))
    begin = LENGTH_BYTES + length
    data = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in DTYPES:
            raise InputError(
                name,
                entry["dtype"],
                f"weights must be stored as {', '.join(DTYPES)}",
                next_step="Take the unquantised checkpoint and let the engine quantise it.",
            )
        start, stop = (begin + offset for offset in entry["data_offsets"])
        if not begin <= start <= stop <= len(data):
            raise SourceError(SourceFault.UNREADABLE, f"{path.name} ends before tensor {name}.")
        yield name, data[start:stop].clone().view(DTYPES[entry["dtype"]]).reshape(entry["shape"])


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
