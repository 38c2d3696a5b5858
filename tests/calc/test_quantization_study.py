"""The study against the worked case, against plain numpy, and what each grain of scale can and cannot confine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import InputError
from calc.quantization_study import (
    GROUP,
    MOST_STUDIED,
    SCHEMES,
    Outlier,
    Studied,
    bounded,
    errors_in_steps,
    histogram,
    random_activations,
    random_matrix,
    smoothing_study,
    study,
)


def by_name(studied):
    return {found.scheme.name: found for found in study(studied)}


@pytest.mark.reference
def test_the_worked_case(worked):
    case = worked["quant-error"]
    given_in = case["in"]
    studied = random_matrix(
        seed=given_in["seed"],
        rows=given_in["shape"][0],
        columns=given_in["shape"][1],
        outlier=Outlier.OUTPUT,
        channel=given_in["outlier_row"],
        factor=given_in["outlier_factor"],
    )
    found = by_name(studied)
    assert found["int8, per tensor"].mean_absolute == pytest.approx(
        case["want"]["per_tensor"], abs=case["abs"]
    )
    assert found["int8, per channel"].mean_absolute == pytest.approx(
        case["want"]["per_channel"], abs=case["abs"]
    )


def test_int8_and_int4_are_what_three_lines_of_numpy_give():
    studied = random_matrix(seed=5, outlier=Outlier.INPUT, factor=20)
    values, found = studied.values, by_name(studied)
    for bits, name in ((8, "int8, per channel"), (4, "int4, per channel")):
        scale = np.abs(values).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
        read_back = np.round(values / scale) * scale
        outside = np.arange(values.shape[1]) != studied.channel
        assert found[name].mean_absolute == pytest.approx(np.abs(read_back - values)[:, outside].mean())
    grouped = values.reshape(-1, GROUP)
    scale = np.abs(grouped).max(axis=1, keepdims=True) / 7
    rms = np.sqrt(np.mean((np.round(grouped / scale) * scale - grouped) ** 2)) / np.sqrt(np.mean(values**2))
    assert found["int4, per group of 128"].relative_rms == pytest.approx(rms)
    assert found["int4, per group of 128"].bits_per_value == 4.125


def test_a_row_of_outliers_is_confined_by_channels_and_a_column_only_by_groups():
    row, column = (
        by_name(random_matrix(outlier=where, factor=50)) for where in (Outlier.OUTPUT, Outlier.INPUT)
    )
    assert row["int8, per tensor"].mean_absolute > 30 * row["int8, per channel"].mean_absolute
    assert column["int8, per channel"].mean_absolute > 10 * row["int8, per channel"].mean_absolute
    # one group of four holds the column: the other three are spared
    spared = column["int8, per group of 128"].mean_absolute / column["int8, per channel"].mean_absolute
    assert spared == pytest.approx(0.25, abs=0.05)
    # a float keeps its relative precision beside an outlier
    assert column["fp8 E4M3, per tensor"].typical_row < 0.05 < column["int8, per tensor"].typical_row


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 999), st.sampled_from(list(Outlier)), st.floats(1, 1e5), st.sampled_from(SCHEMES))
def test_every_error_that_is_not_clipped_is_within_half_a_step(seed, outlier, factor, scheme):
    studied = random_matrix(seed=seed, rows=16, columns=256, outlier=outlier, factor=factor)
    rounded = scheme.rounding(studied.values)
    assert np.all(np.abs(errors_in_steps(studied.values, rounded)) <= 0.5 * (1 + 1e-9))
    if scheme.format.startswith("int"):
        assert not rounded.saturated.any()


def test_the_histogram_holds_every_value_once():
    studied = random_matrix(outlier=Outlier.NONE, factor=1)
    for scheme in SCHEMES:
        spread = histogram(studied, scheme)
        assert sum(spread.shares) + spread.saturated_share == pytest.approx(1.0)


def test_smoothing_is_exact_and_helps_where_activations_have_outliers():
    weights = random_matrix(outlier=Outlier.NONE, factor=1).values
    rough = random_activations(tokens=64, channels=512, outliers=4, factor=60)
    found = smoothing_study(activations=rough, weights=weights, alpha=0.5)
    assert found.drift < 1e-14  # the same product before rounding
    assert min(found.errors) < found.plain / 4
    assert found.weights_only < min(found.errors)
    assert max(found.smoothed_peaks) < max(found.activation_peaks) / 4
    even = smoothing_study(
        activations=random_activations(tokens=64, channels=512, outliers=0, factor=1),
        weights=weights,
        alpha=0.5,
    )
    assert min(even.errors) > 0.8 * even.plain  # nothing to move


def test_a_tensor_is_cut_to_what_is_studied_and_says_so():
    values, note = bounded(np.ones((3, 300)))
    assert values.shape == (3, 256)
    assert note == "the first 3 rows and 256 columns are studied"
    assert bounded(np.ones((4, 128)))[1] == ""
    assert bounded(np.ones((5000, 256)))[0].size <= MOST_STUDIED
    assert bounded(np.ones((2, 3, 128)))[0].shape == (6, 128)  # experts: their rows one after the other


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounded(np.ones(128)),
        lambda: bounded(np.ones((8, 100))),
        lambda: random_matrix(rows=10_000, columns=10_000, outlier=Outlier.NONE, factor=1),
        lambda: random_matrix(outlier=Outlier.NONE, factor=0),
        lambda: random_activations(tokens=4, channels=8, outliers=9, factor=2),
    ],
)
def test_refusals(call):
    with pytest.raises(InputError):
        call()


def test_zeros_and_a_zero_row_are_no_trouble():
    for found in study(Studied(values=np.zeros((4, 128)), note="zeros")):
        assert found.relative_rms == found.typical_row == found.mean_absolute == 0.0
