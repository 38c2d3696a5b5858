"""Shares and ratios that pages show: parts of a model, its weights in other formats, lines of the whole path."""

import pytest

from calc.parameters import ParameterCount, count_parameters
from calc.quantization import beside_as_stored
from presets import models
from probes.whole_path_line import WholePathLine


def test_parts_of_a_model_are_shares_of_it_largest_first():
    counted = ParameterCount(
        total=200, active=200, embedding=20, lm_head=0, tied=True, parts={"mlp": 150, "embedding": 20, "attention": 30}
    )  # fmt: skip
    assert counted.by_size == [("mlp", 150, 0.75), ("attention", 30, 0.15), ("embedding", 20, 0.1)]


def test_weights_in_another_format_stand_beside_those_as_stored():
    """Llama 2 13B in 8 bits: embeddings and head (2 x 32,000 x 5,120) keep their 16 bits, as do norms."""
    spec = models.load("meta-llama/Llama-2-13b-hf")
    total = count_parameters(spec).total
    kept = 2 * 32_000 * 5_120
    (same, eight) = beside_as_stored(spec, ("bf16", "int8"))
    assert same == ("bf16", 2 * total, 1.0)
    assert eight[2] == pytest.approx((2 * kept + (total - kept)) / (2 * total), rel=2e-3)


def test_a_rate_below_its_prediction_is_as_slow_as_a_time_above_it():
    def line(measured, predicted, unit):
        return WholePathLine(table="cache", what="", measured=measured, predicted=predicted, unit=unit)

    assert line(3.0, 2.0, "s").slowness == pytest.approx(1.5)
    assert line(20.0, 30.0, "tokens/s").slowness == pytest.approx(1.5)
    assert line(3.0, None, "s").slowness is None
    assert line(3.0, 2.0, "s").times(line(1.5, 2.0, "s")) == pytest.approx(2.0)
