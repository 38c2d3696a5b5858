"""Matrices of a safetensors file that a person uploads, read without torch: the header, then one tensor's own bytes.

The file is untrusted: its header is bounded and checked (`presets.checkpoint`), offsets must lie inside the file and agree
with dtype and shape, and no more than the first rows of one tensor are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import prod
from typing import Any, BinaryIO, Final

import numpy as np

from calc.errors import InputError, SourceError, SourceFault, shown
from calc.quantization_error import E4M3, E5M2, FloatFormat
from presets.checkpoint import LENGTH_BYTES, StoredTensor, header_length, read_header

NEXT_STEP: Final = "Upload a .safetensors file, at best one shard or a single layer that holds the weight."
MAX_DIMENSIONS: Final = 8
MAX_TENSORS: Final = 100_000


def _bfloat16(raw: bytes) -> Any:
    return (np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16).view(np.float32)


def _float8(float_format: FloatFormat, *, finite_only: bool) -> Callable[[bytes], Any]:
    """A decoder by table: sign, exponent with its bias, mantissa; E4M3 has NaN only at all ones, E5M2 infinities too."""
    mantissa_bits = float_format.significand_bits - 1
    code = np.arange(256)
    exponent = (code & 127) >> mantissa_bits
    mantissa = code & ((1 << mantissa_bits) - 1)
    normal = np.ldexp(1.0 + mantissa / (1 << mantissa_bits), exponent - 1 + float_format.min_exponent)
    subnormal = np.ldexp(mantissa / (1 << mantissa_bits), float_format.min_exponent)
    table = np.where(exponent > 0, normal, subnormal)
    highest = (127 >> mantissa_bits) if not finite_only else 0
    special = (code & 127) == 127 if finite_only else exponent == highest
    table = np.where(special, np.nan, table) * np.where(code & 128, -1.0, 1.0)
    return lambda raw: table[np.frombuffer(raw, dtype=np.uint8)]


def _plain(dtype: str) -> Callable[[bytes], Any]:
    return lambda raw: np.frombuffer(raw, dtype=dtype)


# The format's own names (safetensors documentation): bytes of an element, and how it reads.
DECODERS: Final[dict[str, tuple[int, Callable[[bytes], Any]]]] = {
    "F64": (8, _plain("<f8")),
    "F32": (4, _plain("<f4")),
    "F16": (2, _plain("<f2")),
    "BF16": (2, _bfloat16),
    "F8_E4M3": (1, _float8(E4M3, finite_only=True)),
    "F8_E5M2": (1, _float8(E5M2, finite_only=False)),
}


def tensor_list(file: BinaryIO, *, name: str) -> tuple[StoredTensor, ...]:
    """All tensors of the file, checked against its size; `SourceError` says what is wrong with a bad one."""
    size = _size(file)
    try:
        begin, tensors = read_header(file, name=name)
    except SourceError as error:
        raise SourceError(error.fault, error.message, next_step=NEXT_STEP) from None
    if len(tensors) > MAX_TENSORS:
        raise _bad(name, f"it lists {len(tensors)} tensors (at most {MAX_TENSORS} are read)")
    for tensor in tensors:
        _check(tensor, size - begin, name)
    return tuple(tensors)


def matrices(tensors: tuple[StoredTensor, ...]) -> tuple[StoredTensor, ...]:
    """Those that the error study can take: two axes or more, in a float format."""
    return tuple(t for t in tensors if len(t.shape) >= 2 and t.format in DECODERS and t.elements)


def read_matrix(file: BinaryIO, tensor: StoredTensor, *, name: str, most_values: int) -> Any:
    """The first whole rows of a tensor, up to `most_values` values, as float64 (rows, last axis); refuses NaN and infinity.

    A row longer than `most_values` is cut.
    """
    if tensor.format not in DECODERS:
        raise InputError(
            "tensor",
            f"{tensor.name} in {tensor.format}",
            f"formats that can be studied are {', '.join(DECODERS)}",
        )
    if len(tensor.shape) < 2 or not tensor.elements:
        raise InputError(
            "tensor", tensor.shape, "a matrix has two axes: choose a weight, not a bias or a norm"
        )
    width, decode = DECODERS[tensor.format]
    columns = tensor.shape[-1]
    rows = max(1, min(prod(tensor.shape[:-1]), most_values // columns))
    _size(file)
    length = header_length(file.read(LENGTH_BYTES), file=name)
    file.seek(LENGTH_BYTES + length + tensor.begin)
    wanted = min(rows * columns, most_values) if rows == 1 else rows * columns
    raw = file.read(wanted * width)
    if len(raw) < wanted * width:
        raise _bad(name, f"it ends inside {shown(tensor.name)}")
    values = np.asarray(decode(raw), dtype=float).reshape(rows, -1)
    if not np.all(np.isfinite(values)):
        raise InputError("tensor", tensor.name, "weights must be finite: it holds NaN or infinity")
    return values


def _size(file: BinaryIO) -> int:
    """Bytes of the file, which is left at its beginning."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def _check(tensor: StoredTensor, data_bytes: int, name: str) -> None:
    if tensor.begin + tensor.stored_bytes > data_bytes:
        raise _bad(
            name, f"{shown(tensor.name)} would lie outside the file: it is cut off, or its header is wrong"
        )
    if len(tensor.shape) > MAX_DIMENSIONS:
        raise _bad(name, f"{shown(tensor.name)} has {len(tensor.shape)} axes")
    if tensor.format in DECODERS and tensor.elements * DECODERS[tensor.format][0] != tensor.stored_bytes:
        raise _bad(
            name, f"{shown(tensor.name)} stores {tensor.stored_bytes} bytes, its shape needs another number"
        )


def _bad(name: str, why: str) -> SourceError:
    return SourceError(SourceFault.UNREADABLE, f"{shown(name)} cannot be read: {why}.", next_step=NEXT_STEP)
