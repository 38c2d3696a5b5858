"""Requests under way: known limits, and a simulated system in which nobody waits."""

import numpy as np
import pytest
from scipy import integrate, stats

from calc.errors import InputError
from calc.queueing.in_flight import in_flight_percentile, peakedness, tokens_held


def test_poisson_arrivals_are_insensitive():
    """M/G/∞: the number under way is Poisson, so its variance is its mean whatever the times."""
    assert peakedness(arrival_cv=1.0, time_cv=0.0) == pytest.approx(1.0)
    assert peakedness(arrival_cv=1.0, time_cv=2.5) == pytest.approx(1.0)


def test_equal_times_carry_the_bursts_over():
    """With equal times the number under way counts the arrivals of one time: its dispersion is c²."""
    assert peakedness(arrival_cv=3.0, time_cv=0.0) == pytest.approx(9.0)


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0])
def test_the_shared_part_is_the_integral_of_the_squared_tail(cv):
    sigma = np.sqrt(np.log1p(cv**2))
    times = stats.lognorm(s=sigma, scale=np.exp(-(sigma**2) / 2))  # mean one
    shared, _ = integrate.quad(lambda t: times.sf(t) ** 2, 0, np.inf)
    assert peakedness(arrival_cv=2.0, time_cv=cv) == pytest.approx(1 + 3 * shared, rel=1e-6)


@pytest.mark.parametrize(("arrival_cv", "time_cv"), [(1.0, 1.0), (2.0, 0.5), (3.0, 1.5)])
def test_a_system_without_waits(arrival_cv, time_cv):
    """400,000 arrivals at 100 per second with times of 1 s on average: mean, variance and 99th percentile."""
    draw = np.random.default_rng(5)
    count, rate = 400_000, 100.0
    shape = 1.0 / arrival_cv**2
    arrived = np.cumsum(draw.gamma(shape, 1.0 / (shape * rate), count))
    sigma = np.sqrt(np.log1p(time_cv**2))
    left = np.sort(arrived + draw.lognormal(-(sigma**2) / 2, sigma, count))
    at = draw.uniform(arrived[20_000], arrived[-1], 40_000)
    under_way = np.searchsorted(arrived, at) - np.searchsorted(left, at)
    z = peakedness(arrival_cv=arrival_cv, time_cv=time_cv)
    assert under_way.mean() == pytest.approx(100.0, rel=0.03)
    assert under_way.var() / under_way.mean() == pytest.approx(z, rel=0.12)
    predicted = in_flight_percentile(mean=100.0, peakedness=z, percentile=99)
    assert np.percentile(under_way, 99) == pytest.approx(predicted, rel=0.06)


def test_tokens_held_by_drawing():
    """A request is seen in proportion to its output, at a random place of it."""
    draw = np.random.default_rng(3)
    sigma = np.sqrt(np.log1p(1.2**2))
    outputs = draw.lognormal(np.log(300) - sigma**2 / 2, sigma, 2_000_000)
    seen = np.average(outputs * draw.uniform(size=outputs.size), weights=outputs)
    assert tokens_held(input_tokens=500, output_tokens=300, output_cv=1.2) == pytest.approx(
        500 + seen, rel=0.02
    )
    assert tokens_held(input_tokens=500, output_tokens=300, output_cv=0.0) == 650
    assert tokens_held(input_tokens=500, output_tokens=300, output_cv=1.0) == 800


@pytest.mark.parametrize(
    "call",
    [
        lambda: peakedness(arrival_cv=-1, time_cv=0),
        lambda: in_flight_percentile(mean=0, peakedness=1, percentile=99),
        lambda: in_flight_percentile(mean=1, peakedness=1, percentile=100),
        lambda: tokens_held(input_tokens=0, output_tokens=1, output_cv=0),
    ],
)
def test_refusals(call):
    with pytest.raises(InputError):
        call()
