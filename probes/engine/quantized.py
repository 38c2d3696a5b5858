"""Weights in fewer bits: int8 with a scale a row, int4 with a scale for each 128 weights, fp8 where the device multiplies it.

int8 and int4 are weight-only: a product reads the small weights, makes 16-bit or fp32 ones of them, and multiplies those.
Without a kernel that does both at once, memory shrinks but nothing gets faster (docs/engine.md measures it).
`calc.quantization_error` is the same rounding in numpy; a test holds the two to each other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch.nn import functional

from calc.errors import InputError, ProbeError
from calc.units import MIB

GROUP = 128
SCHEMES = ("int8", "int4-g128", "fp8")
SCALE_DTYPE = torch.bfloat16
DEQUANTIZED_BYTES = 16 * MIB  # of weights that are made at a time, so that they stay in the last cache


@dataclass(frozen=True, slots=True)
class Dense:
    """A matrix in the compute format."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Int8:
    """codes (out, in) int8, scales (out, 1) bf16: weight = code x scale."""

    codes: torch.Tensor
    scales: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows = _strip_rows(self.codes.shape[1], x.dtype)
        parts = [functional.linear(x, codes.to(x.dtype)) for codes in torch.split(self.codes, rows)]
        out = torch.cat(parts, dim=-1) * self.scales.to(x.dtype).T
        return out if self.bias is None else out + self.bias

    def dequantized(self, dtype: torch.dtype) -> torch.Tensor:
        return self.codes.to(dtype) * self.scales.to(dtype)


@dataclass(frozen=True, slots=True)
class Int4:
    """packed (out, in / 2): two codes a byte, the even column in the low half, as code + 8; scales (out, in / 128) bf16."""

    packed: torch.Tensor
    scales: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows = _strip_rows(2 * self.packed.shape[1], x.dtype)
        parts = [
            functional.linear(x, Int4(packed, scales).dequantized(x.dtype))
            for packed, scales in zip(
                torch.split(self.packed, rows), torch.split(self.scales, rows), strict=True
            )
        ]
        out = torch.cat(parts, dim=-1)
        return out if self.bias is None else out + self.bias

    def dequantized(self, dtype: torch.dtype) -> torch.Tensor:
        codes = torch.stack((self.packed & 15, self.packed >> 4), dim=-1).to(dtype) - 8
        groups = codes.reshape(self.packed.shape[0], -1, GROUP)
        return (groups * self.scales.to(dtype)[..., None]).reshape(self.packed.shape[0], -1)


@dataclass(frozen=True, slots=True)
class Fp8:
    """An e4m3 matrix with one fp32 scale; activations get a scale of their own in each call, and fp8 is multiplied."""

    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        largest = torch.finfo(self.weight.dtype).max
        scale = (flat.abs().amax().float() / largest).clamp(min=1e-12)
        small = (flat.float() / scale).clamp(-largest, largest).to(self.weight.dtype)
        out = torch._scaled_mm(  # noqa: SLF001 - the fp8 product that every torch with fp8 has
            small, self.weight.T, scale_a=scale, scale_b=self.scale, out_dtype=torch.bfloat16
        )
        out = out.to(x.dtype).reshape(*x.shape[:-1], -1)
        return out if self.bias is None else out + self.bias


Linear = Dense | Int8 | Int4 | Fp8


def weight_bytes(matrix: Linear) -> int:
    """Bytes of a matrix as it is kept, its scales included, its bias not."""
    return sum(getattr(matrix, part.name).nbytes for part in fields(matrix) if part.name != "bias")


def linear(weight: torch.Tensor, bias: torch.Tensor | None, scheme: str | None) -> Linear:
    """The matrix in one of `SCHEMES`, or as it is (None)."""
    if scheme is None:
        return Dense(weight, bias)
    if scheme == "int8":
        return Int8(*quantize_int8(weight), bias)
    if scheme == "int4-g128":
        return Int4(*quantize_int4(weight), bias)
    if scheme == "fp8":
        return _fp8(weight, bias)
    raise InputError("quantization", scheme, f"choose one of {', '.join(SCHEMES)}")


def quantize_int8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes, scales) with scale = max|row| / 127, kept in bf16; codes are rounded by the scale that is kept."""
    scales = _kept_scale(weight.float().abs().amax(dim=1, keepdim=True) / 127)
    return _codes(weight, scales, 127).to(torch.int8), scales


def quantize_int4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(packed codes, scales) with scale = max|group| / 7 over groups of 128 along a row, kept in bf16."""
    rows, columns = weight.shape
    if columns % GROUP:
        raise InputError("in_features", columns, f"int4 in groups needs a multiple of {GROUP}")
    groups = weight.reshape(rows, -1, GROUP)
    scales = _kept_scale(groups.float().abs().amax(dim=2, keepdim=True) / 7)
    codes = (_codes(groups, scales, 7) + 8).to(torch.uint8).reshape(rows, -1, 2)
    return codes[..., 0] | (codes[..., 1] << 4), scales.squeeze(2)


def _kept_scale(scale: torch.Tensor) -> torch.Tensor:
    """The scale as it is stored; a group of zeros gets one, so that nothing is divided by zero."""
    return torch.where(scale > 0, scale, torch.ones_like(scale)).to(SCALE_DTYPE)


def _codes(values: torch.Tensor, scales: torch.Tensor, levels: int) -> torch.Tensor:
    return (values.float() / scales.float()).round().clamp(-levels, levels)


def _fp8(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    largest = torch.finfo(torch.float8_e4m3fn).max
    scale = (weight.float().abs().amax() / largest).clamp(min=1e-12)
    matrix = Fp8((weight.float() / scale).clamp(-largest, largest).to(torch.float8_e4m3fn), scale, bias)
    try:
        matrix(torch.ones(16, weight.shape[1], dtype=torch.bfloat16, device=weight.device))
    except (RuntimeError, NotImplementedError, ValueError) as error:
        raise ProbeError(
            f"This device does not multiply fp8: {str(error).splitlines()[0][:200]}",
            next_step="Take int8 or int4-g128, or a GPU with fp8 (Ada, Hopper, MI300 and later).",
        ) from error
    return matrix


def _strip_rows(columns: int, dtype: torch.dtype) -> int:
    return max(1, DEQUANTIZED_BYTES // (columns * dtype.itemsize))
