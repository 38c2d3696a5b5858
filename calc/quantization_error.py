"""What rounding does to numbers: int8, int4, fp8, MXFP4, NVFP4 with scales per tensor, channel or group; SmoothQuant.

Everything rounds to nearest, ties to even, and returns the values as they would be read back. Source of the formats:
OCP 8-bit floating point 1.0 (E4M3, E5M2), OCP Microscaling 1.0 (MXFP4: blocks of 32, E8M0 scale), NVIDIA's NVFP4
(blocks of 16, E4M3 scale, one FP32 scale per tensor).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from calc.arrays import Numbers, positive_finite, scalar, share
from calc.errors import InputError


class Grain(StrEnum):
    """How many values share one scale."""

    TENSOR = "tensor"
    CHANNEL = "channel"  # one scale a row: an output feature of a (out, in) weight
    GROUP = "group"  # one scale for each run of values along a row


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatFormat:
    """A small float: significand bits with the hidden one, least exponent of a normal number, largest value."""

    significand_bits: int
    min_exponent: int
    largest: float


E4M3 = FloatFormat(significand_bits=4, min_exponent=-6, largest=448.0)
E5M2 = FloatFormat(significand_bits=3, min_exponent=-14, largest=57344.0)
E2M1 = FloatFormat(significand_bits=2, min_exponent=0, largest=6.0)
E8M0_EXPONENTS = (-127, 127)  # OCP Microscaling 1.0, section 5.4.1
MXFP4_BLOCK = 32
NVFP4_BLOCK = 16
LAST_BITS = 1e-12  # what dividing by a scale and multiplying again may move a value by


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """`values` as they read back, the gap between neighbours (`step`) where each value lies, stored bits per value.

    `saturated`: values beyond the largest that their scale reaches; every other error is at most half a step.
    """

    values: Any
    step: Any
    saturated: Any
    bits_per_value: float

    @property
    def saturated_share(self) -> float:
        """Share of the values that are clipped."""
        return float(np.mean(self.saturated))


def bits_per_weight(
    *, bits: Numbers, scale_bits: Numbers, group: Numbers, zero_point_bits: Numbers = 0
) -> Numbers:
    """Stored bits per weight when each group of `group` weights has one scale (and zero point).

    Source: arithmetic; e.g. GPTQ and AWQ checkpoints with group 128. Ignores: packing to whole words, and layers left
    in 16 bit.
    """
    positive_finite(bits=bits, group=group)
    return bits + (scale_bits + zero_point_bits) / group


def float_spacing(*, at: Numbers, significand_bits: Numbers) -> Numbers:
    """The gap between neighbouring floats at a normal value: 2^(floor(log2|x|) - (p - 1)), p with the hidden bit.

    Source: IEEE 754 (bf16: p = 8, fp16: 11, fp32: 24). Ignores: subnormal numbers.
    """
    positive_finite(at=at, significand_bits=significand_bits)
    exponent = np.frexp(np.asarray(at, dtype=float))[1] - 1
    return scalar(np.exp2(exponent - (np.asarray(significand_bits) - 1)))


def round_integer(
    values: Any, *, bits: int = 8, grain: Grain = Grain.TENSOR, group: int = 128, scale_bits: int = 16
) -> Rounded:
    """Symmetric integer rounding: scale = max|x| / (2^(bits-1) - 1) of each tensor, row or group; error at most scale/2.

    `values` is a matrix (rows are channels). A scale of zero (all zeros) reads back as zeros.

    Source: Jacob et al. 2018 (arXiv 1712.05877) in its symmetric form. Ignores: clipping ranges chosen by calibration, and that the scale itself
    is stored in 16 bit (a 0.2% change of every step).
    """
    if not 2 <= bits <= 16:
        raise InputError("bits", bits, "it must be from 2 to 16")
    matrix = _matrix(values)
    levels = 2 ** (bits - 1) - 1
    blocks = _blocks(matrix, grain=grain, group=group)
    scale = np.max(np.abs(blocks), axis=-1, keepdims=True) / levels
    safe = np.where(scale > 0, scale, 1.0)
    read_back = np.clip(np.rint(blocks / safe), -levels, levels) * scale
    return Rounded(
        values=read_back.reshape(matrix.shape),
        step=np.broadcast_to(scale, blocks.shape).reshape(matrix.shape),
        saturated=np.zeros(matrix.shape, dtype=bool),
        bits_per_value=bits + scale_bits / blocks.shape[-1],
    )


def round_float(values: Any, float_format: FloatFormat) -> Any:
    """Values rounded to a small float format: nearest, ties to even, subnormals kept, saturating at the largest.

    Source: OCP 8-bit floating point 1.0, section 5.2 (saturating mode). Ignores: NaN and infinity, which are refused.
    """
    array = np.asarray(values, dtype=float)
    if not np.all(np.isfinite(array)):
        raise InputError("values", "a value that is not finite", "weights must be finite")
    gap = _gap(array, float_format)
    return np.clip(np.rint(array / gap) * gap, -float_format.largest, float_format.largest)


def _gap(array: Any, float_format: FloatFormat) -> Any:
    """The gap between neighbours of the format where each value lies; beyond the largest, that of the top."""
    top = int(np.frexp(float_format.largest)[1]) - 1
    exponent = np.clip(np.frexp(array)[1] - 1, float_format.min_exponent, top)
    return np.ldexp(1.0, exponent - (float_format.significand_bits - 1))


def _scaled_floats(
    matrix: Any, blocks: Any, scale: Any, float_format: FloatFormat, *, bits_per_value: float
) -> Rounded:
    """Blocks rounded to a float format at their scales; a block of scale zero reads back as zeros."""
    safe = np.where(scale > 0, scale, 1.0)
    shown = blocks / safe
    return Rounded(
        values=(round_float(shown, float_format) * scale).reshape(matrix.shape),
        step=(_gap(shown, float_format) * scale).reshape(matrix.shape),
        saturated=(np.abs(blocks) > float_format.largest * scale * (1 + LAST_BITS)).reshape(matrix.shape),
        bits_per_value=bits_per_value,
    )


def round_fp8(
    values: Any, *, float_format: FloatFormat = E4M3, grain: Grain = Grain.TENSOR, group: int = 128
) -> Rounded:
    """fp8 with an FP32 scale that maps the largest value of each tensor, row or group to the format's largest.

    Source: Micikevicius et al. 2022 (arXiv 2209.05433). Ignores: scales fixed ahead of time by calibration.
    """
    matrix = _matrix(values)
    blocks = _blocks(matrix, grain=grain, group=group)
    scale = np.max(np.abs(blocks), axis=-1, keepdims=True) / float_format.largest
    return _scaled_floats(matrix, blocks, scale, float_format, bits_per_value=8 + 32 / blocks.shape[-1])


def round_mxfp4(values: Any) -> Rounded:
    """MXFP4: blocks of 32 E2M1 values with a power-of-two scale, 2^(floor(log2 max|x|) - 2).

    Values above 6 scales saturate, as the specification's conversion does.

    Source: OCP Microscaling 1.0, section 6.3. Ignores: rounding-up variants of the shared exponent.
    """
    matrix = _matrix(values)
    blocks = _blocks(matrix, grain=Grain.GROUP, group=MXFP4_BLOCK)
    largest = np.max(np.abs(blocks), axis=-1, keepdims=True)
    element_exponent = int(np.frexp(E2M1.largest)[1]) - 1
    exponent = np.clip(np.frexp(largest)[1] - 1 - element_exponent, *E8M0_EXPONENTS)
    scale = np.where(largest > 0, np.ldexp(1.0, exponent), 1.0)
    return _scaled_floats(matrix, blocks, scale, E2M1, bits_per_value=4 + 8 / MXFP4_BLOCK)


def round_nvfp4(values: Any) -> Rounded:
    """NVFP4: blocks of 16 E2M1 values, an E4M3 scale each, and one FP32 scale that maps the tensor's largest to 448·6.

    Source: NVIDIA, "Introducing NVFP4" (2025) and the TensorRT-LLM and Model Optimizer recipes. Ignores: search for
    better scales.
    """
    matrix = _matrix(values)
    blocks = _blocks(matrix, grain=Grain.GROUP, group=NVFP4_BLOCK)
    tensor_scale = np.max(np.abs(matrix)) / (E4M3.largest * E2M1.largest)
    wanted = np.max(np.abs(blocks), axis=-1, keepdims=True) / (E2M1.largest * (tensor_scale or 1.0))
    scale = round_float(wanted, E4M3) * tensor_scale
    return _scaled_floats(matrix, blocks, scale, E2M1, bits_per_value=4 + 8 / NVFP4_BLOCK + 32 / matrix.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """How far rounded values are from the true ones."""

    mean_absolute: float
    largest: float
    relative_rms: float  # root mean square of the error over that of the values; 0 for all zeros


def rounding_error(values: Any, rounded: Any) -> Error:
    """Mean, largest and relative root-mean-square error of `rounded` against `values`.

    Source: definition. Ignores: what the error does to a model's answers; evaluate that.
    """
    true = np.asarray(values, dtype=float)
    difference = np.abs(np.asarray(rounded, dtype=float) - true)
    power = float(np.sqrt(np.mean(true**2)))
    return Error(
        mean_absolute=float(difference.mean()),
        largest=float(difference.max()),
        relative_rms=float(np.sqrt(np.mean(difference**2))) / power if power else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothed:
    """Activations divided and weights multiplied by the same factor per input channel; their product is unchanged."""

    activations: Any
    weights: Any


def smooth(*, activations: Any, weights: Any, alpha: float = 0.5) -> Smoothed:
    """SmoothQuant's rescale: factor_j = max|X_j|^alpha / max|W_j|^(1 - alpha) for each input channel j.

    `activations` (tokens, in), `weights` (out, in). X / factor and W · factor have the same product, with outliers moved
    from activations to weights. Channels of zeros keep factor 1.

    Source: Xiao et al. 2023 (arXiv 2211.10438), equation 4. Ignores: fusing the factor into the layer before.
    """
    share(alpha=alpha)
    x, w = _matrix(activations), _matrix(weights)
    if x.shape[1] != w.shape[1]:
        raise InputError("weights", w.shape, f"the last axis must match the activations' ({x.shape[1]})")
    x_max, w_max = np.max(np.abs(x), axis=0), np.max(np.abs(w), axis=0)
    both = (x_max > 0) & (w_max > 0)
    factors = np.ones_like(x_max)
    factors[both] = x_max[both] ** alpha / w_max[both] ** (1.0 - alpha)
    return Smoothed(activations=x / factors, weights=w * factors)


def _matrix(values: Any) -> Any:
    matrix = np.asarray(values, dtype=float)
    if matrix.ndim != 2 or matrix.size == 0:
        raise InputError("values", matrix.shape, "give a matrix with at least one row and column")
    if not np.all(np.isfinite(matrix)):
        raise InputError("values", "a value that is not finite", "weights must be finite")
    return matrix


def _blocks(matrix: Any, *, grain: Grain, group: int) -> Any:
    """The matrix as (..., values that share a scale)."""
    if grain is Grain.TENSOR:
        return matrix.reshape(1, -1)
    if grain is Grain.CHANNEL:
        return matrix
    if group < 1 or matrix.shape[1] % group:
        raise InputError("group", group, f"it must divide the row length ({matrix.shape[1]})")
    return matrix.reshape(matrix.shape[0], -1, group)
