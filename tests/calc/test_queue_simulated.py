"""The simulated queue against Kleinrock's formulas and against simpy's own event loop."""

import numpy as np
import pytest
import simpy

from calc.errors import InputError
from calc.queueing.simulated import times_in_system_s


@pytest.mark.parametrize(("rate", "mean_s"), [(20.0, 0.03333), (40.0, 0.100)])
def test_mm1_mean_is_the_published_one(rate, mean_s):
    times = times_in_system_s(arrivals_per_s=rate, service_s=0.020, requests=400_000, seed=1)
    assert times[40_000:].mean() == pytest.approx(mean_s, rel=0.04)
    assert np.quantile(times[40_000:], 0.95) == pytest.approx(mean_s * np.log(20), rel=0.05)


def test_even_work_halves_the_wait():
    even = times_in_system_s(arrivals_per_s=40.0, service_s=0.020, requests=400_000, seed=2, even_work=True)
    assert even.mean() - 0.020 == pytest.approx(0.040, rel=0.05)


@pytest.mark.parametrize("servers", [1, 3])
def test_each_request_leaves_when_simpy_lets_it_leave(servers):
    requests, rate, service = 500, 40.0, 0.020 * servers
    random = np.random.default_rng(7)
    gaps = random.exponential(1.0 / rate, requests)
    work = random.exponential(service, requests)
    environment, spent = simpy.Environment(), []
    desk = simpy.Resource(environment, capacity=servers)

    def visit(number):
        arrived = environment.now
        with desk.request() as turn:
            yield turn
            yield environment.timeout(work[number])
        spent.append((number, environment.now - arrived))

    def door():
        for number in range(requests):
            yield environment.timeout(gaps[number])
            environment.process(visit(number))

    environment.process(door())
    environment.run()
    ours = times_in_system_s(
        arrivals_per_s=rate, service_s=service, requests=requests, seed=7, servers=servers
    )
    assert ours == pytest.approx([time for _, time in sorted(spent)], rel=1e-9)


def test_refuses_more_than_it_can_hold():
    with pytest.raises(InputError, match="requests"):
        times_in_system_s(arrivals_per_s=1.0, service_s=1.0, requests=10_000_000, seed=0)
