"""Calibration: known scalars come back, held-out points improve, nothing is fitted that the data cannot tell."""

import json
from dataclasses import replace

import numpy as np
import pytest

from calc.endpoint.calibration import Observation, Quantity, calibrate
from calc.errors import InputError
from calc.layout import Layout
from calc.profile import Calibration, Evidence, profile_from_json
from calc.step import StepModel
from presets import accelerators, models, profiles


@pytest.fixture(scope="module")
def model():
    gpu = accelerators.load("h100")
    return StepModel.of(models.load("Qwen/Qwen3-8B"), gpu, Layout(), profiles.load(gpu, "vllm"))


def observed(model, *, noise=0.0, seed=0):
    """What a server that follows the model would show."""
    rng = np.random.default_rng(seed)
    found = []
    for tokens in (256, 512, 1024, 2048, 4096, 8192):
        point = model.serving(input_tokens=tokens, output_tokens=8, concurrency=1)
        found.append((Quantity.TTFT, tokens, 8, 1, float(np.ravel(point.ttft_s.best)[0])))
    for users in (1, 2, 4, 8, 16, 32):
        point = model.serving(input_tokens=512, output_tokens=128, concurrency=users)
        found.append((Quantity.TPOT, 512, 128, users, float(np.ravel(point.tpot_s.best)[0])))
    return [
        Observation(
            quantity=q,
            input_tokens=i,
            output_tokens=o,
            concurrency=c,
            value=v * float(np.exp(noise * rng.standard_normal())),
        )
        for q, i, o, c, v in found
    ]


def shifted(model, **scalars):
    return replace(model, profile=replace(model.profile, calibration=Calibration(scalars=scalars)))


@pytest.mark.parametrize(
    "truth",
    [
        {"decode_factor": 1.4, "prefill_factor": 0.8, "ttft_s": 0.04},
        {"decode_factor": 0.8, "prefill_factor": 1.5, "step_s": 0.003, "sequence_s": 5e-5, "ttft_s": 0.01},
    ],
)
def test_a_server_that_differs_by_known_scalars_is_predicted_after_calibration(model, truth):
    result = calibrate(model, observed(shifted(model, **truth)), source="made up")
    assert result.median_error(after=False, fitted=False) > 0.1
    assert result.median_error(after=True, fitted=False) < 0.02
    assert max(p.error(after=True) for p in result.points) < 0.06


def test_known_factors_come_back_within_their_uncertainty(model):
    truth = {"decode_factor": 1.4, "prefill_factor": 0.8}
    result = calibrate(model, observed(shifted(model, **truth), noise=0.03, seed=4))
    found = {f.name: f for f in result.scalars}
    assert found["prefill_factor"].value == pytest.approx(0.8, rel=0.1)
    # A slower step and more seconds per step look alike over a few points: their sum is told, each within what it says.
    assert abs(np.log(found["decode_factor"].value / 1.4)) < 3 * found["decode_factor"].uncertainty


def test_a_server_as_predicted_is_left_alone(model):
    result = calibrate(model, observed(model))
    for scalar in result.scalars:
        if scalar.name.endswith("factor"):
            assert scalar.value == pytest.approx(1.0, abs=0.01)
        else:
            assert scalar.value < 1e-3


def test_at_most_six_scalars_and_never_more_than_points(model):
    points = observed(model)
    assert len(calibrate(model, points).scalars) <= 6
    few = [o for o in points if o.quantity is Quantity.TPOT][:3]
    assert len(calibrate(model, few).scalars) <= 3
    with pytest.raises(InputError, match="at least 3"):
        calibrate(model, few[:2])


def test_the_profile_travels_as_a_file_and_says_that_it_is_calibrated(model):
    result = calibrate(
        model, observed(shifted(model, decode_factor=1.3)), source="tiny at http://127.0.0.1:8000"
    )
    again = profile_from_json(json.loads(json.dumps(result.profile.as_json())))
    assert again.evidence is Evidence.CALIBRATED
    assert again.calibration == result.profile.calibration
    assert "127.0.0.1" in again.calibration.source


def test_points_must_be_positive_numbers():
    with pytest.raises(InputError):
        Observation(
            quantity=Quantity.TPOT, input_tokens=1, output_tokens=2, concurrency=1, value=float("nan")
        )
