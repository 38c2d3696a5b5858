"""What each format and grain of scale loses on one matrix: the error study of the *Quantisation* page.

A matrix has outputs as rows and inputs as columns, as checkpoints store weights. `random_matrix` makes one with an
outlier channel, `study` rounds any matrix in every way, `smoothing_study` follows SmoothQuant over its exponent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from calc.arrays import positive_finite
from calc.errors import InputError
from calc.quantization_error import (
    E5M2,
    Grain,
    Rounded,
    round_fp8,
    round_integer,
    round_mxfp4,
    round_nvfp4,
    rounding_error,
    smooth,
)

GROUP = 128
MOST_STUDIED = 1 << 19  # values of a matrix that are studied: every figure settles long before (our choice)
HISTOGRAM_BINS = 50
ALPHAS = tuple(round(0.05 * n, 2) for n in range(21))

Rounding = Callable[[Any], Rounded]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One way to round a matrix: the format, what shares a scale, and the rounding."""

    format: str
    grain: str
    rounding: Rounding

    @property
    def name(self) -> str:
        return f"{self.format}, {self.grain}"


def _integer(bits: int, grain: Grain) -> Rounding:
    return lambda matrix: round_integer(matrix, bits=bits, grain=grain, group=GROUP)


def _fp8(grain: Grain) -> Rounding:
    return lambda matrix: round_fp8(matrix, grain=grain, group=GROUP)


GRAINS = {Grain.TENSOR: "per tensor", Grain.CHANNEL: "per channel", Grain.GROUP: f"per group of {GROUP}"}
SCHEMES = (
    *(Scheme(format="int8", grain=words, rounding=_integer(8, grain)) for grain, words in GRAINS.items()),
    *(Scheme(format="int4", grain=words, rounding=_integer(4, grain)) for grain, words in GRAINS.items()),
    *(Scheme(format="fp8 E4M3", grain=words, rounding=_fp8(grain)) for grain, words in GRAINS.items()),
    Scheme(
        format="fp8 E5M2",
        grain="per tensor",
        rounding=lambda matrix: round_fp8(matrix, float_format=E5M2),
    ),
    Scheme(format="MXFP4", grain="per block of 32", rounding=round_mxfp4),
    Scheme(format="NVFP4", grain="per block of 16", rounding=round_nvfp4),
)


class Outlier(StrEnum):
    """Where the large values of a made-up matrix stand."""

    OUTPUT = "one output channel (row)"
    INPUT = "one input channel (column)"
    NONE = "nowhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Studied:
    """A matrix and the row or column in it that holds the outliers, where that is known."""

    values: Any
    note: str
    outlier: Outlier = Outlier.NONE
    channel: int = 0

    @property
    def others(self) -> Any:
        """True for every value outside the outlier channel."""
        mask = np.ones(self.values.shape, dtype=bool)
        if self.outlier is Outlier.OUTPUT:
            mask[self.channel] = False
        elif self.outlier is Outlier.INPUT:
            mask[:, self.channel] = False
        return mask


def random_matrix(
    *, seed: int = 0, rows: int = 256, columns: int = 512, outlier: Outlier, channel: int = 3, factor: float
) -> Studied:
    """Standard normal values with one channel `factor` times larger."""
    positive_finite(factor=factor)
    if rows * columns > MOST_STUDIED or min(rows, columns) < 1:
        raise InputError("rows x columns", (rows, columns), f"1 to {MOST_STUDIED:,} values are studied")
    values = np.random.default_rng(seed).normal(size=(rows, columns))
    if outlier is Outlier.OUTPUT:
        values[channel] *= factor
    elif outlier is Outlier.INPUT:
        values[:, channel] *= factor
    note = f"{rows} x {columns} standard normal values (seed {seed})"
    if outlier is not Outlier.NONE:
        note += f", {outlier} {factor:g} times larger"
    return Studied(values=values, note=note, outlier=outlier, channel=channel)


def bounded(matrix: Any) -> tuple[Any, str]:
    """The first rows and columns of a matrix that the study takes, and what was left out, in words.

    Rows are cut to a multiple of the group, so that every grain rounds the same values.
    """
    array = np.asarray(matrix)
    if array.ndim < 2:
        raise InputError(
            "tensor", array.shape, "a matrix has two axes: choose a weight, not a bias or a norm"
        )
    array = array.reshape(-1, array.shape[-1])
    columns = min(array.shape[1] - array.shape[1] % GROUP, MOST_STUDIED // GROUP)
    if columns < GROUP or not array.shape[0]:
        raise InputError("tensor", array.shape, f"its rows must hold at least {GROUP} values")
    rows = min(array.shape[0], max(1, MOST_STUDIED // columns))
    note = (
        ""
        if (rows, columns) == array.shape
        else f"the first {rows:,} rows and {columns:,} columns are studied"
    )
    return array[:rows, :columns], note


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeError:
    """What one scheme loses.

    `mean_absolute`: over the values outside the outlier channel. `typical_row`: median over rows of each row's root mean
    square error over its own root mean square; `worst_row` the largest. `most_steps`: largest error, in steps, of values
    that are not clipped: at most one half.
    """

    scheme: Scheme
    bits_per_value: float
    mean_absolute: float
    typical_row: float
    worst_row: float
    relative_rms: float
    most_steps: float
    saturated_share: float


def study(studied: Studied, schemes: tuple[Scheme, ...] = SCHEMES) -> tuple[SchemeError, ...]:
    """The losses of every scheme on one matrix.

    Source: definitions. Ignores: what an error does to a model's answers; evaluate that with the model.
    """
    return tuple(_losses(studied, scheme, scheme.rounding(studied.values)) for scheme in schemes)


def _losses(studied: Studied, scheme: Scheme, rounded: Rounded) -> SchemeError:
    values, others = studied.values, studied.others
    rows = _row_errors(values, rounded.values)
    return SchemeError(
        scheme=scheme,
        bits_per_value=rounded.bits_per_value,
        mean_absolute=float(np.abs(rounded.values - values)[others].mean()),
        typical_row=float(np.median(rows)),
        worst_row=float(rows.max()),
        relative_rms=rounding_error(values, rounded.values).relative_rms,
        most_steps=float(np.abs(errors_in_steps(values, rounded)).max(initial=0.0)),
        saturated_share=rounded.saturated_share,
    )


def _row_errors(values: Any, read_back: Any) -> Any:
    error, size = row_sizes(values, read_back)
    return np.divide(error, size, out=np.zeros_like(size), where=size > 0)


def row_sizes(values: Any, read_back: Any) -> tuple[Any, Any]:
    """Root mean squares of each row: of its rounding errors, and of its values."""
    size = np.sqrt(np.mean(values**2, axis=1))
    return np.sqrt(np.mean((read_back - values) ** 2, axis=1)), size


def grain_factor(errors: tuple[SchemeError, ...]) -> float:
    """How many times the mean error of one int8 scale for the tensor is that of one per channel; 1 where neither errs."""
    by_name = {one.scheme.name: one for one in errors}
    tensor, channel = by_name["int8, per tensor"], by_name["int8, per channel"]
    return tensor.mean_absolute / channel.mean_absolute if channel.mean_absolute else 1.0


def errors_in_steps(values: Any, rounded: Rounded) -> Any:
    """Errors of the values that are not clipped, in units of the gap between neighbours: from -1/2 to 1/2."""
    kept = ~rounded.saturated & (rounded.step > 0)
    return (rounded.values[kept] - values[kept]) / rounded.step[kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How the errors of one scheme spread, in steps: bin centres and the share of values in each."""

    centres: tuple[float, ...]
    shares: tuple[float, ...]
    saturated_share: float


def histogram(studied: Studied, scheme: Scheme) -> Histogram:
    """The error histogram of one scheme over one matrix."""
    rounded = scheme.rounding(studied.values)
    errors = errors_in_steps(studied.values, rounded)
    counted, edges = np.histogram(errors, bins=HISTOGRAM_BINS, range=(-0.5, 0.5))
    return Histogram(
        centres=tuple(((edges[:-1] + edges[1:]) / 2).tolist()),
        shares=tuple((counted / studied.values.size).tolist()),
        saturated_share=rounded.saturated_share,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothingStudy:
    """int8 weights and activations with and without SmoothQuant.

    `errors`: relative error of the product at each of `alphas`; `plain` without the rescaling, `weights_only` with the
    activations left alone. `drift`: how far the rescaled product is from the true one before any rounding (what floating
    point leaves of zero). `activation_peaks`, `smoothed_peaks`: largest absolute activation of each input channel.
    """

    alphas: tuple[float, ...]
    errors: tuple[float, ...]
    plain: float
    weights_only: float
    drift: float
    best_alpha: float
    activation_peaks: tuple[float, ...]
    smoothed_peaks: tuple[float, ...]

    def at(self, alpha: float) -> float:
        """The error of the product at the exponent that was tried nearest to `alpha`."""
        nearest = min(range(len(self.alphas)), key=lambda place: abs(self.alphas[place] - alpha))
        return self.errors[nearest]


def random_activations(*, tokens: int, channels: int, outliers: int, factor: float, seed: int = 1) -> Any:
    """Standard normal activations (tokens, channels) in which `outliers` evenly spaced channels are `factor` times larger.

    Source of the pattern: LLM.int8() (Dettmers et al. 2022): a few fixed channels reach up to 20 times and more.
    """
    if not 0 <= outliers <= channels or tokens < 1:
        raise InputError("outliers", outliers, f"there are {channels} channels and {tokens} tokens")
    activations = np.random.default_rng(seed).normal(size=(tokens, channels))
    if outliers:
        activations[:, np.arange(outliers) * channels // outliers] *= factor
    return activations


def smoothing_study(*, activations: Any, weights: Any, alpha: float) -> SmoothingStudy:
    """SmoothQuant over its exponent: activations int8 per tensor, weights int8 per output channel, errors of the product.

    `alpha` is the one whose channels are shown. Source: Xiao et al. 2023 (arXiv 2211.10438). Ignores: scales per token, which
    engines also use, and calibration on real text.
    """
    true = activations @ weights.T
    chosen = smooth(activations=activations, weights=weights, alpha=alpha)
    errors = tuple(_product_error(true, *_sides(activations, weights, one)) for one in ALPHAS)
    rounded_weights = round_integer(weights, grain=Grain.CHANNEL).values
    return SmoothingStudy(
        alphas=ALPHAS,
        errors=errors,
        plain=_product_error(true, activations, weights),
        weights_only=rounding_error(true, activations @ rounded_weights.T).relative_rms,
        drift=rounding_error(true, chosen.activations @ chosen.weights.T).relative_rms,
        best_alpha=ALPHAS[int(np.argmin(errors))],
        activation_peaks=tuple(np.abs(activations).max(axis=0).tolist()),
        smoothed_peaks=tuple(np.abs(chosen.activations).max(axis=0).tolist()),
    )


def _sides(activations: Any, weights: Any, alpha: float) -> tuple[Any, Any]:
    smoothed = smooth(activations=activations, weights=weights, alpha=alpha)
    return smoothed.activations, smoothed.weights


def _product_error(true: Any, activations: Any, weights: Any) -> float:
    product = round_integer(activations).values @ round_integer(weights, grain=Grain.CHANNEL).values.T
    return rounding_error(true, product).relative_rms
