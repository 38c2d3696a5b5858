"""What rounding loses, worked out: each number of the table of schemes from the values that make it."""

from math import isclose

import numpy as np
import pytest

from calc.formulas import FORMULAS
from calc.quantization_study import SCHEMES, Outlier, grain_factor, random_matrix, smoothing_study, study
from calc.worked.rounding import worked_losses


@pytest.fixture(scope="module")
def studied():
    return random_matrix(outlier=Outlier.INPUT, factor=50.0, rows=64, columns=256)


def test_every_scheme_comes_out_again(studied):
    for found in study(studied):
        lines = worked_losses(studied, found)
        for line in lines:
            assert isclose(FORMULAS[line.formula].value(line.inputs), line.result, rel_tol=1e-9), line
        told = {line.about.split(":")[0].split(",")[0]: line.result for line in lines}
        assert told["mean error of the values beside the outlier"] == found.mean_absolute
        assert told["typical row"] == pytest.approx(
            found.typical_row, rel=0.02
        )  # the median lies between two rows
        assert told["worst row"] == pytest.approx(found.worst_row)
        assert told["largest error over the gap there"] == pytest.approx(found.most_steps)
        assert told.get("values that are clipped", 0.0) == pytest.approx(found.saturated_share)


def test_one_scale_for_all_loses_what_the_outlier_takes(studied):
    """The step of one scale is the largest value's: for one row 50 times larger, its own scales are some 14 times finer."""
    by_row = random_matrix(outlier=Outlier.OUTPUT, factor=50.0, rows=64, columns=256)
    errors = study(by_row, SCHEMES)
    largest = np.abs(by_row.values).max(axis=1)
    others = np.delete(largest, by_row.channel)
    assert grain_factor(errors) == pytest.approx(largest.max() / others.mean(), rel=0.1)


def test_the_error_at_an_exponent_is_that_of_the_nearest_one_tried():
    random = np.random.default_rng(3)
    activations, weights = random.normal(size=(8, 32)), random.normal(size=(16, 32))
    found = smoothing_study(activations=activations, weights=weights, alpha=0.5)
    place = found.alphas.index(0.5)
    assert found.at(0.501) == found.errors[place]
