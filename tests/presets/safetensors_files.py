"""Safetensors files of given tensors, written by the safetensors library itself (so that its layout is the oracle)."""

import json

import numpy as np
from safetensors.numpy import save


def single(tensors):
    """The bytes of one file; `tensors`: name -> (numpy dtype, shape)."""
    return save({name: np.zeros(shape, dtype=dtype) for name, (dtype, shape) in tensors.items()})


def sharded(tensors, n_shards):
    """File name -> bytes of a checkpoint split over `n_shards` files, index included."""
    names = sorted(tensors)
    files, weight_map = {}, {}
    for shard in range(n_shards):
        file = f"model-{shard + 1:05d}-of-{n_shards:05d}.safetensors"
        mine = {name: tensors[name] for name in names[shard::n_shards]}
        files[file] = single(mine)
        weight_map |= dict.fromkeys(mine, file)
    total = sum(np.dtype(dtype).itemsize * int(np.prod(shape)) for dtype, shape in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    return files
