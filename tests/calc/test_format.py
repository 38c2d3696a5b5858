"""Readings of numbers, against how the field writes them."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import format as fmt
from calc.provenance import Estimate, Provenance


def between(low, best, high):
    return Estimate(low=low, best=best, high=high, provenance=Provenance.FITTED)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.0, "1"),
        (2390.4, "2,390"),
        (33.06, "33.1"),
        (0.0065432, "0.00654"),
        (999.6, "1,000"),
        (123456, "123,000"),
        (-16.86, "-16.9"),
        (10, "10"),
        (100, "100"),
        (math.inf, "∞"),
        (math.nan, "unknown"),
    ],
)
def test_three_significant_digits(value, text):
    assert fmt.significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.03306, "33.1 ms"),
        (0.0128, "12.8 ms"),
        (8.51, "8.51 s"),
        (0.0000032, "3.2 µs"),
        (90, "90 s"),
        (120, "2 min"),
        (7200, "2 h"),
        (172800, "2 days"),
        (0.9999, "1 s"),
        (0, "0 s"),
    ],
)
def test_durations_take_the_unit_that_suits(value, text):
    assert fmt.seconds(value) == text


def test_binary_and_decimal_bytes_are_never_confused():
    weights = 405_853_388_800 * 2  # Llama-3.1-405B in bf16: 756 GiB, 812 GB
    assert fmt.binary_bytes(weights) == "756 GiB"
    assert fmt.decimal_bytes(weights) == "812 GB"
    assert fmt.binary_bytes(131_072) == "128 KiB"
    assert fmt.binary_bytes(819_200) == "800 KiB"


def test_a_range_names_its_unit_once():
    assert fmt.seconds(between(0.029, 0.033, 0.038)) == "33 ms (29 to 38)"
    assert fmt.usd(between(0.381, 0.42, 0.472)) == "$0.42 (0.38 to 0.47)"
    assert fmt.percent(between(0.55, 0.62, 0.71)) == "62% (55 to 71)"


def test_a_narrow_range_keeps_its_third_digit():
    assert fmt.seconds(between(0.0328, 0.0330, 0.0332)) == "33 ms (32.8 to 33.2)"


def test_an_exact_estimate_reads_as_a_number():
    assert fmt.seconds(Estimate.exactly(0.03306)) == "33.1 ms"


def test_rates_take_si_prefixes():
    assert fmt.si(312e12, "FLOP/s") == "312 TFLOP/s"
    assert fmt.si(2.039e12, "B/s") == "2.04 TB/s"
    assert fmt.si(0, "FLOP/s") == "0 FLOP/s"


def test_words_for_counts():
    assert fmt.parameters(8_028_164_096) == "8.03 billion"
    assert fmt.parameters(671e9) == "671 billion"
    assert fmt.count(433_664) == "433,664"
    assert fmt.plural(1, "GPU") == "1 GPU"
    assert fmt.plural(3, "GPU") == "3 GPUs"
    assert fmt.plural(2, "copy", "copies") == "2 copies"
    assert fmt.factor(2.801) == "2.8x"
    assert fmt.percent(0.8) == "80%"
    assert fmt.plain(2390.2, "tokens/s") == "2,390 tokens/s"


def test_absent_values_say_so():
    assert fmt.optional(None, fmt.seconds, "no target") == "no target"
    assert fmt.optional(0.05, fmt.seconds) == "50 ms"
    assert fmt.seconds(math.nan) == "unknown"
    assert fmt.seconds(math.inf) == "∞ s"


@settings(deadline=None, max_examples=200)
@given(st.floats(min_value=1e-12, max_value=1e18))
def test_a_reading_is_within_half_a_unit_of_the_third_digit(value):
    read = float(fmt.significant(value).replace(",", ""))
    assert math.isclose(read, value, rel_tol=0.005001)


@settings(deadline=None, max_examples=100)
@given(st.floats(min_value=1e-8, max_value=1e7))
def test_a_duration_reads_back(value):
    number, unit = fmt.seconds(value).split(" ")
    scale = {u: s for s, u in fmt.SECONDS}[unit]
    assert math.isclose(float(number.replace(",", "")) * scale, value, rel_tol=0.005001)
