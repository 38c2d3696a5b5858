"""Frontiers against the worked step and against their own definition."""

from dataclasses import replace

import numpy as np
import pytest

from calc.frontier import at_interactivity, frontier, offered, operating_points
from calc.layout import Layout
from calc.replica_model import replica_model
from calc.scenario import Scenario
from presets import accelerators
from presets.resolve import offer_of, resolve


@pytest.fixture(scope="module")
def points():
    inputs = resolve(
        Scenario(model="textbook-13b", gpu="a100-textbook", usd_per_gpu_hour=2.0, fidelity="textbook")
    )
    return operating_points(inputs, inputs.offer)


def test_one_sequence_on_one_gpu_is_the_worked_one(points):
    # worked case step-13b-a100: 13.0 ms; prefill-13b-a100: 85.33 ms for 256 tokens
    alone = next(p for p in points if p.layout == "TP1" and p.batch == 1)
    assert alone.user_tokens_per_s == pytest.approx(1 / 0.0130, rel=2e-3)
    assert alone.tokens_per_s_per_gpu == pytest.approx(1 / (0.0130 + 0.08533 / 256), rel=2e-3)
    assert alone.usd_per_million == pytest.approx(2.0 / 3600 / alone.tokens_per_s_per_gpu * 1e6)
    assert alone.tokens_per_usd == pytest.approx(3600 * alone.tokens_per_s_per_gpu / 2.0)


def test_what_the_cache_cannot_hold_does_not_fit(points):
    held = {p.batch for p in points if p.layout == "TP1" and p.fits}
    assert max(held) == 64  # 79 sequences fit (worked case capacity-13b-a100)


def test_no_point_of_the_frontier_is_beaten_by_another(points):
    best = frontier(points)
    assert len(best) > 3
    for point in best:
        assert not any(
            other.fits
            and other.user_tokens_per_s > point.user_tokens_per_s
            and other.tokens_per_s_per_gpu > point.tokens_per_s_per_gpu
            for other in points
        )
    speeds = [p.user_tokens_per_s for p in best]
    assert speeds == sorted(speeds)


def test_faster_users_never_get_more_out_of_a_gpu(points):
    found = [at_interactivity(points, speed) for speed in (10, 30, 60, 120)]
    rates = [p.tokens_per_s_per_gpu for p in found if p]
    assert rates == sorted(rates, reverse=True)
    assert at_interactivity(points, 1e6) is None


def test_a_model_that_fits_nowhere_has_no_points():
    inputs = resolve(Scenario(model="meta-llama/Meta-Llama-3-70B"))
    assert operating_points(inputs, offer_of(accelerators.load("rtx-4060"))) == ()


def test_watts_per_user_stay_under_the_limit_and_fall_with_the_batch():
    """An H100's limit is 700 W: no more than that is shared by the users of a GPU; without a limit there are no watts."""
    inputs = resolve(Scenario(gpu="h100-sxm5-80gb", fidelity="textbook"))
    alone = [p for p in operating_points(inputs, inputs.offer) if p.layout == "TP1"]
    assert all(p.watts_per_user.high * p.batch <= 700 + 1e-9 for p in alone)
    shares = [p.watts_per_user.best for p in alone]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("fidelity", ["textbook", "expected"])
def test_no_point_depends_on_traffic_or_targets(fidelity):
    asked = Scenario(
        model="meta-llama/Meta-Llama-3.1-8B", gpu="h100-sxm5-80gb", rate_per_s=77.0, ttft_s=0.01, tpot_s=0.2, headroom=0.9,
        percentile=99.0, peak_factor=3.0, arrival_cv=2.0, fidelity=fidelity,
    )  # fmt: skip
    inputs = resolve(asked)
    plain = replace(inputs, scenario=offered(asked))
    assert plain != inputs
    assert operating_points(plain, inputs.offer) == operating_points(inputs, inputs.offer) != ()


@pytest.mark.parametrize("prompt", [1024.0, 8000.0])
def test_a_points_users_are_those_of_a_serving_point(prompt):
    """Compare and `serve-point` say one thing of a layout and so many users; a GPU's tokens follow from Little's law."""
    inputs = resolve(
        Scenario(
            model="meta-llama/Meta-Llama-3.1-8B",
            gpu="h100-sxm5-80gb",
            input_tokens=prompt,
            output_tokens=500.0,
        )
    )
    point = next(p for p in operating_points(inputs, inputs.offer) if p.layout == "TP2" and p.batch == 32)
    served = replica_model(inputs, Layout(tp=2)).serving(
        input_tokens=prompt, output_tokens=500.0, concurrency=32.0
    )
    assert 1 / point.user_tokens_per_s == pytest.approx(float(np.ravel(served.tpot_s.best)[0]), rel=1e-9)
    assert point.ttft_s == pytest.approx(float(np.ravel(served.ttft_s.best)[0]), rel=1e-9)
    e2e_s = point.ttft_s + 499 / point.user_tokens_per_s
    assert point.tokens_per_s_per_gpu == pytest.approx(32 * 500 / e2e_s / 2, rel=1e-9)
