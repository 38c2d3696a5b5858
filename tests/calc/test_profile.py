"""The profile format: JSON there and back, shares that stay shares, and what may override what."""

import json

import pytest

from calc.collectives import LinkCurve, curve_for
from calc.errors import InputError
from calc.profile import Calibration, profile_from_json
from calc.profile_numbers import Number
from calc.provenance import Provenance
from presets import profiles


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp"])
def test_a_profile_survives_its_json(engine):
    profile = profiles.load("rtx-4090", engine)
    again = profile_from_json(json.loads(json.dumps(profile.as_json())))
    assert again.device == profile.device
    assert again.engine == profile.engine
    assert again.evidence == profile.evidence
    assert dict(again.spread) == dict(profile.spread)


def test_a_measured_device_changes_its_own_numbers_and_no_engine_number():
    profile = profiles.load("h100-sxm5-80gb", "vllm")
    measured = profile.device.measured({"bandwidth.16bit": 0.91}, source="probe")
    assert measured.numbers["bandwidth.16bit"].provenance is Provenance.MEASURED
    assert measured.numbers["compute.16bit"] == profile.device.numbers["compute.16bit"]
    with pytest.raises(InputError, match=r"attention\.bandwidth"):
        profile.device.measured({"attention.bandwidth": 0.9}, source="probe")


def test_a_share_above_its_peak_is_refused():
    device = profiles.load("h100-sxm5-80gb", "vllm").device
    with pytest.raises(InputError, match="cannot exceed 1"):
        device.measured({"bandwidth.16bit": 1.2}, source="probe")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 7}, "schema"),
        ({"device": None}, "device"),
        ({"calibration": {"scalars": {"speed": 2.0}}}, "calibration"),
        ({"calibration": {"scalars": {"decode_factor": -1.0}}}, "decode_factor"),
    ],
)
def test_a_profile_that_is_none_is_refused_by_its_part(change, message):
    content = profiles.load("h100-sxm5-80gb", "vllm").as_json() | change
    with pytest.raises(InputError, match=message):
        profile_from_json(json.loads(json.dumps(content)))


def test_a_missing_number_is_named():
    content = profiles.load("h100-sxm5-80gb", "vllm").as_json()
    del content["device"]["numbers"]["kernel_s"]
    with pytest.raises(InputError, match="kernel_s"):
        profile_from_json(content)


def test_numbers_say_what_they_refer_to():
    profile = profiles.load("b200-sxm-180gb", "tensorrt-llm")
    for number in (*profile.device.numbers.values(), *profile.engine.numbers.values()):
        assert isinstance(number, Number)
        assert number.of.startswith(("share of", "seconds", "times", "tokens", "decode steps"))


def test_a_calibration_is_neutral_until_it_says_something():
    empty = Calibration()
    assert (empty.get("decode_factor"), empty.get("step_s")) == (1.0, 0.0)


def test_a_link_curve_starts_at_alpha_and_ends_at_its_rate():
    curve = LinkCurve(ranks=8, alpha_s=5e-6, beta_of_link=0.5, half_bytes=1e6)
    assert float(curve.seconds(0, 450e9)) == 0
    assert float(curve.seconds(1, 450e9)) == pytest.approx(5e-6, rel=0.01)
    size = 64e9
    assert size / float(curve.seconds(size, 450e9)) == pytest.approx(225e9, rel=0.01)
    assert curve_for((curve,), 4) is curve
    with pytest.raises(InputError, match="beta_of_link"):
        LinkCurve(ranks=2, alpha_s=0.0, beta_of_link=1.5, half_bytes=0.0)
