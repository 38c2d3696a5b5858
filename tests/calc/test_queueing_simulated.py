"""The small simulations against the formulas, within their own standard errors, simpy's own event loop, and Little's law counted by hand."""

import numpy as np
import pytest
import simpy

from calc.errors import InputError
from calc.queueing import MD1, MM1, MMc, batch_means, simulate_line, simulate_sharing

REQUESTS = 20_000


def drawn(seed, rate, requests=REQUESTS):
    rng = np.random.default_rng(seed)
    return rng.exponential(1 / rate, requests), rng.exponential(1.0, requests)


@pytest.mark.parametrize("seed", range(5))
def test_mm1_at_80_percent_stays_five_services(seed):
    gaps, services = drawn(seed, 0.8)
    found = batch_means(simulate_line(gaps_s=gaps, services_s=services).times_s)
    assert abs(found.mean - 5.0) <= 3 * found.standard_error
    assert 0.1 < found.standard_error < 1.5


def test_even_services_follow_md1():
    gaps, _ = drawn(6, 0.8, 200_000)
    run = simulate_line(gaps_s=gaps, services_s=np.ones(gaps.size))
    found, exact = batch_means(run.waits_s), MD1(arrivals_per_s=0.8, service_s=1.0)
    assert abs(found.mean - exact.mean_wait_s) <= 3 * found.standard_error
    assert run.time_quantile_s(99) == pytest.approx(exact.time_quantile_s(99), rel=0.05)


def test_several_servers_follow_mmc():
    gaps, services = drawn(2, 4.0, 60_000)
    found = batch_means(simulate_line(gaps_s=gaps, services_s=services, servers=5).waits_s)
    exact = MMc(arrivals_per_s=4.0, service_s=1.0, servers=5).mean_wait_s
    assert abs(found.mean - exact) <= 3 * found.standard_error


def test_one_server_either_way_is_the_same():
    gaps, services = drawn(3, 0.7, 500)
    recursion, heap = [], 0.0
    for arrival, service in zip(np.cumsum(gaps), services, strict=True):
        recursion.append(max(0.0, heap - arrival))
        heap = max(arrival, heap) + service
    assert simulate_line(gaps_s=gaps, services_s=services).waits_s == pytest.approx(recursion, abs=1e-9)


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
    ours = simulate_line(gaps_s=gaps, services_s=work, servers=servers).times_s
    assert ours == pytest.approx([time for _, time in sorted(spent)], rel=1e-9)


def test_sharing_has_the_mean_of_mm1_at_a_constant_rate():
    """Twenty independent runs: their mean, and its error from their spread."""
    means = []
    for seed in range(20):
        gaps, sizes = drawn(seed, 0.7, 10_000)
        means.append(simulate_sharing(gaps_s=gaps, sizes=sizes, rate_per_s=lambda _n: 1.0).mean_time_s)
    error = np.std(means, ddof=1) / np.sqrt(20)
    assert abs(np.mean(means) - MM1(arrivals_per_s=0.7, service_s=1.0).mean_time_s) <= 3 * error
    assert error < 0.15


def test_one_slot_of_sharing_is_a_line():
    gaps, sizes = drawn(5, 0.9, 2_000)
    shared = simulate_sharing(gaps_s=gaps, sizes=sizes, rate_per_s=lambda _n: 1.0, slots=1)
    line = simulate_line(gaps_s=gaps, services_s=sizes)
    assert shared.times_s == pytest.approx(line.times_s, rel=1e-6, abs=1e-6)
    assert shared.waits_s == pytest.approx(line.waits_s, rel=1e-6, abs=1e-6)


def test_littles_law_holds_to_the_last_bits():
    gaps, services = drawn(7, 0.8, 5_000)
    run = simulate_line(gaps_s=gaps, services_s=services)
    assert run.mean_in_system == pytest.approx(run.arrivals_per_s * run.mean_time_s, rel=1e-9)


def test_independent_values_have_the_usual_error():
    values = np.random.default_rng(0).normal(size=40_000)
    assert batch_means(values, batches=100).standard_error == pytest.approx(1 / 200, rel=0.2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: simulate_line(gaps_s=[1.0, 2.0], services_s=[1.0]),
        lambda: simulate_line(gaps_s=[], services_s=[]),
        lambda: simulate_line(gaps_s=[-1.0], services_s=[1.0]),
        lambda: batch_means([1.0], batches=2),
    ],
)
def test_refusals(call):
    with pytest.raises(InputError):
        call()
