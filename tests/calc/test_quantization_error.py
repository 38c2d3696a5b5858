"""Rounding: torch's own float formats, bounds that must hold, and what outliers do to each kind of scale."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import InputError
from calc.quantization_error import (
    E2M1,
    E4M3,
    E5M2,
    Grain,
    bits_per_weight,
    float_spacing,
    round_float,
    round_fp8,
    round_integer,
    round_mxfp4,
    round_nvfp4,
    rounding_error,
    smooth,
)

E2M1_VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6]  # OCP Microscaling 1.0, table 5


def weights(seed=0, shape=(64, 256)):
    return np.random.default_rng(seed).normal(size=shape)


def values_to_round():
    rng = np.random.default_rng(1)
    spread = rng.normal(size=20_000) * np.exp(rng.uniform(-12, 5, 20_000))
    return np.concatenate(
        (spread, np.arange(-448, 449) / 1.0, np.arange(-64, 65) / 512, [0.0, 464.0, 1e6, -1e6])
    )


@pytest.mark.torch
def test_fp8_rounds_as_torch_does():
    import torch

    values = values_to_round()
    for ours, theirs in ((E4M3, torch.float8_e4m3fn), (E5M2, torch.float8_e5m2)):
        within = values[np.abs(values) <= ours.largest]
        expected = torch.tensor(within, dtype=torch.float32).to(theirs).to(torch.float64).numpy()
        # torch rounds from fp32; the values are chosen so that fp64 to fp32 moves no tie
        assert np.array_equal(round_float(within.astype(np.float32), ours), expected)


@pytest.mark.torch
def test_16_bit_spacing_is_torch_s():
    import torch

    for at in (0.3, 1.0, 10.0, 30.0, 4096.0):
        for bits, dtype in ((8, torch.bfloat16), (11, torch.float16)):
            here = torch.tensor(at, dtype=dtype)
            gap = torch.nextafter(here, torch.tensor(1e4, dtype=dtype)).double() - here.double()
            assert float_spacing(at=float(here), significand_bits=bits) == gap.item()


def test_fp4_has_exactly_its_eight_values():
    grid = np.random.default_rng(4).uniform(-8, 8, 10_000)  # no ties
    rounded = np.abs(round_float(grid, E2M1))
    assert sorted(set(rounded)) == E2M1_VALUES
    nearest = np.argmin(np.abs(np.abs(grid)[:, None] - E2M1_VALUES), axis=1)
    assert np.array_equal(rounded, np.array(E2M1_VALUES)[nearest])


def test_ties_go_to_even():
    assert round_float(np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]), E2M1).tolist() == [
        0,
        1,
        1,
        2,
        2,
        4,
        4,
    ]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from(list(Grain)), st.integers(2, 8), st.floats(1e-6, 1e6))
def test_integer_error_stays_within_half_a_step(seed, grain, bits, size):
    matrix = size * weights(seed, (8, 128))
    rounded = round_integer(matrix, bits=bits, grain=grain, group=32)
    assert np.all(np.abs(matrix - rounded.values) <= rounded.step / 2 * (1 + 1e-9))


FLOATS = {
    "fp8 per tensor": round_fp8,
    "fp8 per channel": lambda m: round_fp8(m, grain=Grain.CHANNEL),
    "fp8 per group": lambda m: round_fp8(m, grain=Grain.GROUP, group=32),
    "E5M2": lambda m: round_fp8(m, float_format=E5M2),
    "MXFP4": round_mxfp4,
    "NVFP4": round_nvfp4,
}


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000),
    st.sampled_from(sorted(FLOATS)),
    st.floats(1e-20, 1e20),
    st.floats(1, 1e7),
    st.integers(0, 127),
)
def test_float_error_stays_within_half_the_gap_where_the_value_lies(seed, name, size, outlier, column):
    """Everywhere but beyond the largest value of a scale, where exactly the rest is lost."""
    matrix = size * weights(seed, (8, 128))
    matrix[3, column] *= outlier
    rounded = FLOATS[name](matrix)
    error = np.abs(matrix - rounded.values)
    free = ~rounded.saturated
    assert np.all(error[free] <= rounded.step[free] / 2 * (1 + 1e-9))
    assert np.all(np.abs(rounded.values[rounded.saturated]) < np.abs(matrix[rounded.saturated]))
    if name != "NVFP4":  # its block scales are rounded, so that a block's largest may lie a little beyond
        assert rounded.saturated_share == 0 or name == "MXFP4"


def test_mxfp4_clips_what_lies_beyond_six_scales():
    """Shared exponent of a block whose largest is 7: floor(log2 7) - 2 = 0, so 7 reads 6 and 5 reads 4 (tie to even)."""
    block = np.array([[7.0, 5.0, -6.4, 0.3] + [0.0] * 28])
    rounded = round_mxfp4(block)
    assert rounded.values[0, :4].tolist() == [6, 4, -6, 0.5]
    assert rounded.saturated[0, :4].tolist() == [True, False, True, False]
    assert rounded.step[0, :4].tolist() == [2, 2, 2, 0.5]


def test_nvfp4_by_hand():
    """Tensor scale 12/2688; block scales 448 and E4M3(6/6 / (12/2688)) = 224: both blocks keep multiples of half a scale."""
    matrix = np.zeros((1, 32))
    matrix[0, :3] = [12, 5.0, 1.0]
    matrix[0, 16:19] = [6, 2.4, 0.6]
    rounded = round_nvfp4(matrix)
    assert rounded.values[0, :3] == pytest.approx([12, 4, 1])  # block scale 2: 5/2 = 2.5 ties to 2
    assert rounded.values[0, 16:19] == pytest.approx([6, 2, 0.5])  # block scale 1


def test_int4_groups_by_hand():
    """Scales 7/7 and 14/7: 3.4 reads 3, 3.6 reads 4; in the second group 3.4 and 3.6 read 4 and 4, 2.9 reads 2."""
    matrix = np.array([[7, 3.4, 3.6, 0, 14, 3.4, 3.6, 2.9]])
    rounded = round_integer(matrix, bits=4, grain=Grain.GROUP, group=4)
    assert rounded.values.tolist() == [[7, 3, 4, 0, 14, 4, 4, 2]]
    assert rounded.step.tolist() == [[1] * 4 + [2] * 4]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from(list(Grain)))
def test_rounding_twice_changes_nothing(seed, grain):
    once = round_integer(weights(seed, (8, 128)), grain=grain).values
    assert round_integer(once, grain=grain).values == pytest.approx(once, rel=1e-12)


def test_finer_scales_confine_an_outlier():
    matrix = weights()
    matrix[3] *= 50
    rows = np.arange(64) != 3
    errors = [
        rounding_error(matrix[rows], round_integer(matrix, grain=grain).values[rows]).mean_absolute
        for grain in (Grain.TENSOR, Grain.CHANNEL, Grain.GROUP)
    ]
    assert errors[0] > 30 * errors[1] > 30 * errors[2]


def test_fp8_is_relative_where_int8_is_absolute():
    """Small values beside an outlier survive in a float format."""
    matrix = weights()
    matrix[0, 0] = 500.0
    small = rounding_error(matrix[1:], round_fp8(matrix).values[1:]).relative_rms
    even = rounding_error(matrix[1:], round_integer(matrix).values[1:]).relative_rms
    assert small < 0.04
    assert even > 0.5


def test_normal_weights_lose_what_is_known_of_each_format():
    """Uniform error of a step/2 bound: rms = step/sqrt(12) for int8 per channel."""
    matrix = weights(7, (256, 1024))
    rounded = round_integer(matrix, grain=Grain.CHANNEL)
    rms = np.sqrt(np.mean((matrix - rounded.values) ** 2))
    assert rms == pytest.approx(np.sqrt(np.mean(rounded.step**2)) / np.sqrt(12), rel=0.02)
    four_bit = [
        rounding_error(matrix, f(matrix).values).relative_rms
        for f in (round_nvfp4, round_mxfp4, lambda m: round_integer(m, bits=4, grain=Grain.TENSOR))
    ]
    assert four_bit == sorted(four_bit)  # smaller blocks with finer scales lose less


def test_bits_count_the_scales():
    assert round_mxfp4(weights()).bits_per_value == 4.25
    assert round_nvfp4(weights()).bits_per_value == pytest.approx(4.5, abs=0.01)
    assert round_integer(weights(), bits=4, grain=Grain.GROUP, group=128).bits_per_value == 4.125
    assert bits_per_weight(bits=4, scale_bits=16, group=128, zero_point_bits=4) == 4.15625


def test_smoothing_keeps_the_product_and_helps_activations():
    rng = np.random.default_rng(2)
    activations, matrix = rng.normal(size=(64, 128)), rng.normal(size=(32, 128))
    activations[:, 5] *= 80
    smoothed = smooth(activations=activations, weights=matrix)
    assert smoothed.activations @ smoothed.weights.T == pytest.approx(activations @ matrix.T)
    true = activations @ matrix.T

    def error_of(x, w):
        rounded = round_integer(x).values @ round_integer(w, grain=Grain.CHANNEL).values.T
        return rounding_error(true, rounded).relative_rms

    assert error_of(smoothed.activations, smoothed.weights) < error_of(activations, matrix) / 2


def test_smoothing_balances_both_sides_at_one_half():
    """Equation 4 of SmoothQuant at alpha 0.5: both sides end with the same largest value in a channel."""
    rng = np.random.default_rng(3)
    smoothed = smooth(activations=rng.normal(size=(50, 16)), weights=rng.normal(size=(8, 16)))
    largest = [np.abs(side).max(axis=0) for side in (smoothed.activations, smoothed.weights)]
    assert largest[0] == pytest.approx(largest[1])


@pytest.mark.parametrize("rounding", [round_integer, round_fp8, round_mxfp4, round_nvfp4])
def test_zeros_stay_zeros(rounding):
    assert not rounding(np.zeros((4, 128))).values.any()
    assert rounding_error(np.zeros((4, 128)), np.zeros((4, 128))).relative_rms == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: round_integer(np.zeros(8)),
        lambda: round_integer(np.full((2, 2), np.nan)),
        lambda: round_integer(np.zeros((2, 100)), grain=Grain.GROUP, group=64),
        lambda: round_integer(np.zeros((2, 2)), bits=1),
        lambda: round_float(np.array([np.inf]), E4M3),
        lambda: smooth(activations=np.ones((2, 3)), weights=np.ones((2, 4))),
        lambda: bits_per_weight(bits=4, scale_bits=16, group=0),
    ],
)
def test_refusals(call):
    with pytest.raises(InputError):
        call()
