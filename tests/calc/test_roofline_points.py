"""The roofline's points against hand arithmetic and the worked intensities."""

import numpy as np
import pytest

from calc.answer import answer
from calc.formulas import FORMULAS
from calc.layout import Layout
from calc.operators import ForwardPass
from calc.roofline_points import RooflineModel, roofline_of, worked_point
from calc.scenario import Scenario
from presets import accelerators, models
from presets.resolve import resolve

CONTEXT = 640.0


@pytest.fixture(scope="module")
def llama():
    return RooflineModel.of(
        models.load("meta-llama/Llama-2-13b-hf"),
        accelerators.load("a100-textbook"),
        Layout(),
        quantization=None,
        kv_dtype="bf16",
    )


def named(points, name):
    return next(p for p in points if p.name == name)


def test_a_weight_matmul_has_the_worked_intensity(llama):
    # worked case matmul-intensity: a square of 5,120 at 153 tokens
    points = llama.points(ForwardPass.decode(153.0, CONTEXT))
    assert named(points, "output projection").intensity == pytest.approx(144.4, abs=0.5)


def test_attention_stays_where_it_is_whatever_the_batch(llama):
    # worked case decode-attention-intensity-groups: one query head per KV head
    for batch in (1.0, 16.0, 512.0):
        found = named(llama.points(ForwardPass.decode(batch, CONTEXT)), "decode attention")
        assert found.intensity == pytest.approx(1.0, abs=0.02)
        assert found.bound == "memory"


def test_grouped_heads_read_four_times_less():
    # worked case decode-attention-intensity
    model = RooflineModel.of(
        models.load("meta-llama/Meta-Llama-3.1-8B"),
        accelerators.load("h100-sxm5-80gb"),
        Layout(),
        quantization=None,
        kv_dtype="bf16",
    )
    point = named(model.points(ForwardPass.decode(8.0, 4096.0)), "decode attention")
    assert point.intensity == pytest.approx(4.0, rel=0.02)


def test_every_dot_is_worked_out_again(llama):
    for step in (ForwardPass.decode(16.0, CONTEXT), ForwardPass.prefill(512.0)):
        for point in llama.points(step):
            for line in worked_point(point, llama.accelerator):
                assert FORMULAS[line.formula].value(line.inputs) == pytest.approx(line.result, rel=1e-9)


def test_shares_add_up_and_no_dot_is_above_its_roof(llama):
    roof = max(r.flop_per_s for r in llama.roofs())
    for step in (ForwardPass.decode(64.0, CONTEXT), ForwardPass.prefill(512.0)):
        points = llama.points(step)
        assert 0.9 < sum(p.share for p in points) <= 1 + 1e-9  # the rest does no arithmetic
        for point in points:
            assert point.flop_per_s <= min(roof, point.intensity * 2.04e12) * (1 + 1e-9)


def test_the_crossing_lies_between_a_memory_bound_and_a_compute_bound_pass(llama):
    at = llama.prefill_crossover()
    below, above = llama.prefill_trail((at - 1, at))
    assert (below.bound, above.bound) == ("memory", "compute")
    assert 153 <= at <= 200  # the ridge of 152.94 tokens, moved up by activations


def test_the_cache_keeps_this_model_memory_bound_for_good(llama):
    # 0.257 ms to read a sequence against 0.083 ms to compute it (worked cases step-parts-13b-a100, step-13b-a100)
    assert llama.decode_crossover(CONTEXT) is None
    assert llama.decode_crossover(0.0) is not None


def test_ridges_are_the_worked_ones(llama):
    bf16 = next(r for r in llama.roofs() if r.format == "bf16")
    assert bf16.ridge_flop_per_byte == pytest.approx(152.94, rel=1e-3)  # worked case ridge-a100


def test_the_share_of_one_sequence_is_the_worked_one():
    found = roofline_of(
        answer(resolve(Scenario(gpu="a100-textbook", kv_bytes_per_gpu=50e9, fidelity="textbook")))
    )
    assert found.alone_share == pytest.approx(0.00654, rel=0.02)  # worked case decode-share-of-peak-a100
    assert np.all(np.diff([p.seconds for p in found.decode_trail]) > 0)
