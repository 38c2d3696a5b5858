"""Whole counts and refusals of numbers that may be arrays."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import arrays
from calc.errors import InputError


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**53 - 1))
def test_whole_numbers_stay_what_they_are(count):
    assert arrays.floor_count(float(count)) == arrays.ceil_count(float(count)) == count


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 10**12), st.integers(1, 10**6))
def test_quotients_are_those_of_integers(numerator, denominator):
    if numerator / denominator < 1e6:  # below, a fraction is at least 1e-6 and no rounding error
        assert arrays.floor_count(numerator / denominator) == numerator // denominator
        assert arrays.ceil_count(numerator / denominator) == -(-numerator // denominator)


def test_the_last_bits_do_not_count():
    assert arrays.ceil_count(3 * 0.1 * 10) == 3
    assert arrays.floor_count((0.1 + 0.7) * 10) == 8
    assert arrays.ceil_count(3.001) == 4
    assert arrays.floor_count(2.999) == 2


def test_kinds():
    assert isinstance(arrays.floor_count(2.5), int)
    assert arrays.floor_count(np.array([1.5, 2.5])).dtype == np.int64
    assert arrays.floor_count(inf) == arrays.ceil_count(inf) == inf
    assert arrays.ceil_count(np.array([0.5, inf])).tolist() == [1.0, inf]


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (arrays.positive, inf, 0),
        (arrays.positive_finite, 1, inf),
        (arrays.not_negative, 0, -1),
        (arrays.share, 1, 1.01),
        (arrays.share_below_one, 0, 1),
        (arrays.positive_share, 1, 0),
    ],
)
def test_refusals_name_the_first_bad_value(check, good, bad):
    check(batch=good)
    with pytest.raises(InputError) as refused:
        check(batch=np.array([good, bad, good]))
    assert refused.value.field == "batch"
    assert refused.value.got == bad
    with pytest.raises(InputError):
        check(batch=float("nan"))
    with pytest.raises(InputError):
        check(batch="many")
