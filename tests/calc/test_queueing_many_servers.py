"""M/M/c, M/M/1/K and the approximations: known values, chains solved by scipy, ciw, limits."""

from math import inf

import ciw
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import integrate, linalg, stats

from calc.errors import InputError
from calc.queueing import MM1, MM1K, AllenCunneen, Kingman, MMc, Sakasegawa, erlang_b, erlang_c
from calc.saturation import State

EIGHT = MMc(arrivals_per_s=20, service_s=1 / 3, servers=8)


def test_mmc_known_values():
    assert erlang_b(offered_load=20 / 3, servers=8) == pytest.approx(0.1596511, rel=1e-6)
    assert EIGHT.waiting_share == pytest.approx(0.5326866, rel=1e-6)
    assert EIGHT.mean_wait_s == pytest.approx(0.13317164, rel=1e-7)
    assert EIGHT.mean_time_s == pytest.approx(0.4665050, rel=1e-6)
    assert EIGHT.wait_tail(0.2) == pytest.approx(0.2393515, rel=1e-6)
    for percentile, time in {50: 0.36325, 90: 1.00030, 99: 1.81825}.items():
        assert EIGHT.time_quantile_s(percentile) == pytest.approx(time, abs=6e-6)


def stationary(up, down):
    """Stationary chances of a birth-death chain from its generator, by scipy's null space."""
    size = len(up) + 1
    generator = np.zeros((size, size))
    for n, (birth, death) in enumerate(zip(up, down, strict=True)):
        generator[n, n + 1], generator[n + 1, n] = birth, death
    generator -= np.diag(generator.sum(axis=1))
    chances = linalg.null_space(generator.T)[:, 0]
    return chances / chances.sum()


@pytest.mark.parametrize("servers", [1, 2, 5])
def test_mmc_agrees_with_its_chain(servers):
    rate, top = 0.7 * servers, 120
    chances = stationary([rate] * top, [min(n, servers) for n in range(1, top + 1)])
    queue = MMc(arrivals_per_s=rate, service_s=1.0, servers=servers)
    assert queue.mean_in_system == pytest.approx(chances @ np.arange(top + 1), rel=1e-8)
    assert queue.waiting_share == pytest.approx(chances[servers:].sum(), rel=1e-8)


def test_mmc_agrees_with_ciw():
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=2.0)],
        service_distributions=[ciw.dists.Exponential(rate=1.0)],
        number_of_servers=[3],
    )
    times = []
    for seed in range(3):
        ciw.seed(seed)
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_time(3000)
        times += [r.exit_date - r.arrival_date for r in simulation.get_all_records() if r.arrival_date > 100]
    queue = MMc(arrivals_per_s=2.0, service_s=1.0, servers=3)
    assert np.mean(times) == pytest.approx(queue.mean_time_s, rel=0.05)
    assert np.percentile(times, 95) == pytest.approx(queue.time_quantile_s(95), rel=0.06)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 300), st.floats(0.05, 0.99))
@example(1, 0.96875)  # far out, where one of the two exponentials has long vanished
def test_mmc_tails_integrate_to_the_means(servers, rho):
    queue = MMc(arrivals_per_s=rho * servers, service_s=1.0, servers=servers)
    end = 40 + 40 / (servers * (1 - rho))
    for tail, mean in ((queue.wait_tail, queue.mean_wait_s), (queue.time_tail, queue.mean_time_s)):
        total = (
            integrate.quad(tail, 0, end / 20, limit=200)[0]
            + integrate.quad(tail, end / 20, end, limit=200)[0]
        )
        assert total == pytest.approx(mean, rel=1e-5, abs=1e-9)


def test_equal_rates_of_service_and_clearing_do_not_divide_by_zero():
    """c/S - λ equals 1/S when λ = (c - 1)/S."""
    near = [MMc(arrivals_per_s=1.0 + e, service_s=1.0, servers=2).time_tail(3.0) for e in (0.0, 1e-9, -1e-9)]
    assert near == pytest.approx([near[0]] * 3, rel=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.floats(0.01, 0.99), st.floats(0, 99.9))
def test_one_server_is_mm1(rho, percentile):
    several, one = MMc(arrivals_per_s=rho, service_s=1.0, servers=1), MM1(arrivals_per_s=rho, service_s=1.0)
    assert several.mean_wait_s == pytest.approx(one.mean_wait_s)
    assert several.time_quantile_s(percentile) == pytest.approx(one.time_quantile_s(percentile), rel=1e-8)


def test_many_servers_stay_exact():
    """B(a, c) equals a Poisson chance over a cumulative one: scipy at 10,000 servers."""
    lost = stats.poisson.pmf(10_000, 9_900) / stats.poisson.cdf(10_000, 9_900)
    assert erlang_b(offered_load=9_900, servers=10_000) == pytest.approx(lost, rel=1e-8)
    assert erlang_c(offered_load=5, servers=5) == 1.0


def test_mm1k_known_values():
    queue = MM1K(arrivals_per_s=0.9, service_s=1.0, capacity=10)
    assert queue.refused_share == pytest.approx(0.0508137, rel=1e-6)
    assert queue.mean_in_system == pytest.approx(3.96944, rel=1e-6)


@pytest.mark.parametrize("rate", [0.3, 1.0, 2.5])
def test_mm1k_agrees_with_its_chain_at_any_load(rate):
    queue = MM1K(arrivals_per_s=rate, service_s=1.0, capacity=6)
    chances = stationary([rate] * 6, [1.0] * 6)
    assert queue.numbers() == pytest.approx(chances)
    assert queue.mean_time_s == pytest.approx(queue.mean_in_system / queue.accepted_per_s)
    assert queue.mean_waiting == pytest.approx(chances @ np.maximum(np.arange(7) - 1, 0))
    accepted = chances[:-1] / chances[:-1].sum()
    for t in (0.0, 0.5, 4.0):
        tail = sum(p * stats.gamma.sf(t, n + 1) for n, p in enumerate(accepted))
        assert queue.time_tail(t) == pytest.approx(tail)
    assert queue.time_tail(queue.time_quantile_s(95)) == pytest.approx(0.05, rel=1e-6)


def test_an_overloaded_bounded_line_says_so():
    queue = MM1K(arrivals_per_s=50, service_s=1.0, capacity=1000)
    assert queue.state is State.SATURATED
    assert queue.refused_share == pytest.approx(0.98)
    assert queue.mean_time_s == pytest.approx(1000, rel=1e-3)


def test_mm1k_with_much_room_is_mm1():
    bounded = MM1K(arrivals_per_s=0.6, service_s=1.0, capacity=400)
    assert bounded.mean_time_s == pytest.approx(MM1(arrivals_per_s=0.6, service_s=1.0).mean_time_s)
    assert MM1K(arrivals_per_s=0.0, service_s=1.0, capacity=3).refused_share == 0.0


def test_approximations_known_values():
    kingman = Kingman(arrivals_per_s=0.8, service_s=1.0, arrival_scv=1.5, service_scv=0.5)
    assert kingman.mean_wait_s == pytest.approx(4.0)
    general = {"arrivals_per_s": 20, "service_s": 1 / 3, "servers": 8, "arrival_scv": 1.5, "service_scv": 2}
    assert AllenCunneen(**general).mean_wait_s == pytest.approx(0.23305, rel=1e-4)
    assert Sakasegawa(**general).mean_wait_s == pytest.approx(0.24223, rel=1e-4)


@pytest.mark.parametrize("kind", [AllenCunneen, Sakasegawa])
def test_approximations_are_near_a_simulated_queue(kind):
    """A simulation of H2/H2/8 with the same moments waits 0.23442 s."""
    found = kind(arrivals_per_s=20, service_s=1 / 3, servers=8, arrival_scv=1.5, service_scv=2).mean_wait_s
    assert found == pytest.approx(0.23442, rel=0.04)


@settings(deadline=None, max_examples=50)
@given(st.floats(0.01, 0.99))
def test_all_approximations_are_exact_for_mm1(rho):
    exact = MM1(arrivals_per_s=rho, service_s=1.0)
    for kind in (Kingman, AllenCunneen, Sakasegawa):
        queue = kind(arrivals_per_s=rho, service_s=1.0)
        assert queue.mean_wait_s == pytest.approx(exact.mean_wait_s)
        assert queue.wait_quantile_s(99) == pytest.approx(exact.wait_quantile_s(99), rel=1e-6, abs=1e-9)


def test_bursts_wait_longer():
    waits = [Kingman(arrivals_per_s=0.8, service_s=1.0, arrival_scv=c).mean_wait_s for c in (0, 1, 9)]
    assert waits == sorted(waits)
    assert waits[2] == pytest.approx(5 * waits[1])


@pytest.mark.parametrize("kind", [Kingman, AllenCunneen, Sakasegawa])
def test_saturation_has_no_latency(kind):
    queue = kind(arrivals_per_s=1.0, service_s=1.0, arrival_scv=2.0)
    assert queue.mean_time_s == queue.time_quantile_s(50) == inf
    assert MMc(arrivals_per_s=9, service_s=1.0, servers=9).mean_time_s == inf


@pytest.mark.parametrize(
    "call",
    [
        lambda: MMc(arrivals_per_s=1, service_s=1, servers=0),
        lambda: MMc(arrivals_per_s=1, service_s=1, servers=1.5),
        lambda: MM1K(arrivals_per_s=1, service_s=1, capacity=0),
        lambda: Kingman(arrivals_per_s=0.5, service_s=1, servers=2),
        lambda: Kingman(arrivals_per_s=0.5, service_s=1, arrival_scv=-1),
    ],
)
def test_refusals(call):
    with pytest.raises(InputError):
        call()
