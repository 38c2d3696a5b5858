"""M/M/1, M/D/1, M/G/1: known values, exact series in many digits, phase-type theory, simulation, limits."""

from decimal import Decimal, localcontext
from itertools import pairwise
from math import factorial, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.linalg import expm

from calc.errors import InputError
from calc.queueing import (
    MD1,
    MG1,
    MM1,
    ExponentialService,
    FixedService,
    GammaService,
    HyperexponentialService,
    LognormalService,
    ObservedService,
    mm1_mean_time_s,
    mm1_replicas_for,
    mm1_time_quantile_s,
)
from calc.saturation import State

LOADS = st.floats(0.01, 0.99)


def test_mm1_known_values():
    queue = MM1(arrivals_per_s=8, service_s=0.1)
    assert queue.mean_time_s == pytest.approx(0.5)
    assert queue.time_quantile_s(99) == pytest.approx(2.302585, rel=1e-6)
    assert queue.mean_in_system == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("rho", "mean", "quantiles"),
    [
        (0.8, 2.0, {90: 5.01151, 95: 6.62032, 99: 10.35589}),
        (0.9, 4.5, {99: 21.89824}),
    ],
)
def test_md1_known_values(rho, mean, quantiles):
    """Values that an independent solver and a simulation of 30 million customers confirm."""
    queue = MD1(arrivals_per_s=rho, service_s=1.0)
    assert queue.mean_wait_s == pytest.approx(mean)
    for percentile, wait in quantiles.items():
        assert queue.wait_quantile_s(percentile) == pytest.approx(wait, rel=2e-6)
        assert queue.time_quantile_s(percentile) == pytest.approx(wait + 1, rel=2e-6)


def erlang_series(rho, x):
    """P(wait <= x services) of M/D/1 by Erlang's alternating series, in enough digits to survive it."""
    with localcontext() as context:
        context.prec = 120
        r, total = Decimal(rho), Decimal(0)
        for k in range(int(x) + 1):
            u = r * (Decimal(k) - Decimal(x))
            total += u**k / factorial(k) * (-u).exp() if k or u else Decimal(1)
        return float((1 - r) * total)


@pytest.mark.parametrize("rho", [0.05, 0.3, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("x", [0.001, 0.5, 1.0, 2.75, 10.2, 40.9, 70.3])
def test_md1_keeps_its_digits(rho, x):
    assert MD1(arrivals_per_s=rho, service_s=1.0).wait_tail(x) == pytest.approx(
        1 - erlang_series(rho, x), abs=3e-12
    )


@settings(deadline=None, max_examples=30)
@given(LOADS)
def test_md1_tail_integrates_to_the_mean(rho):
    queue = MD1(arrivals_per_s=rho, service_s=1.0)
    pieces = np.linspace(0, 40, 41)
    total = sum(integrate.quad(queue.wait_tail, a, b, limit=50)[0] for a, b in pairwise(pieces))
    total += integrate.quad(queue.wait_tail, 40, 40 + 60 / (1 - rho), limit=400)[0]
    assert total == pytest.approx(queue.mean_wait_s, rel=1e-6)


def test_mg1_known_values():
    queue = MG1(arrivals_per_s=0.7, service=HyperexponentialService(mean_s=1.0, variation=2.0))
    assert queue.mean_wait_s == pytest.approx(3.5)
    assert queue.wait_quantile_s(90) == pytest.approx(10.1391, rel=1e-5)
    assert queue.wait_quantile_s(99) == pytest.approx(23.0531, rel=1e-5)
    assert queue.time_quantile_s(50) == pytest.approx(2.53986, rel=1e-5)
    assert queue.time_quantile_s(99) == pytest.approx(24.3257, rel=1e-5)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9, 0.99])
def test_mg1_with_erlang_service_agrees_with_phase_type_theory(rho):
    """The wait of M/PH/1 is phase-type itself: Neuts 1981, theorem 3.2.1, through a matrix exponential."""
    phases, rate = 3, 3.0
    T = -rate * np.eye(phases) + rate * np.eye(phases, k=1)
    start = np.eye(1, phases)[0]
    leave = -T.sum(axis=1)
    residual = -start @ np.linalg.inv(T)  # mean service is 1, so this sums to one
    queue = MG1(arrivals_per_s=rho, service=GammaService(mean_s=1.0, variation=1 / phases))
    for t in (0.3, 2.0, 7.0):
        exact = rho * residual @ expm((T + rho * np.outer(leave, residual)) * t) @ np.ones(phases)
        assert queue.wait_tail(t) == pytest.approx(exact, abs=2e-8)


def lindley(rng, arrivals_per_s, services):
    """Waits of a queue in order, by the running minimum of the random walk."""
    gaps = rng.exponential(1 / arrivals_per_s, services.size)
    walk = np.concatenate(([0.0], np.cumsum(services[:-1] - gaps[1:])))
    return walk - np.minimum.accumulate(np.minimum(walk, 0.0))


def test_mg1_with_lognormal_service_agrees_with_simulation():
    rng = np.random.default_rng(11)
    spread = np.sqrt(np.log(1 + 1.5))
    services = rng.lognormal(-(spread**2) / 2, spread, 2_000_000)
    waits = lindley(rng, 0.6, services)
    queue = MG1(arrivals_per_s=0.6, service=LognormalService(mean_s=1.0, variation=1.5))
    assert queue.mean_wait_s == pytest.approx(waits.mean(), rel=0.02)
    assert queue.wait_quantile_s(90) == pytest.approx(np.percentile(waits, 90), rel=0.03)
    assert queue.time_quantile_s(99) == pytest.approx(np.percentile(waits + services, 99), rel=0.03)
    for t in (0.5, 3.0, 12.0):
        assert queue.time_tail(t) == pytest.approx(np.mean(waits + services > t), abs=0.004)


def test_mg1_with_observed_service_agrees_with_simulation():
    rng = np.random.default_rng(5)
    service = ObservedService.of([0.2, 0.2, 1.0, 3.0, 3.0])
    services = rng.choice([0.2, 0.2, 1.0, 3.0, 3.0], 2_000_000)
    queue = MG1(arrivals_per_s=0.5, service=service)
    waits = lindley(rng, 0.5, services)
    assert service.mean_s == pytest.approx(1.48)
    assert service.scv == pytest.approx(np.var([0.2, 0.2, 1.0, 3.0, 3.0]) / 1.48**2)
    assert queue.mean_wait_s == pytest.approx(waits.mean(), rel=0.02)
    for t in (0.7, 2.2, 9.0):
        assert queue.wait_tail(t) == pytest.approx(np.mean(waits > t), abs=0.004)
        assert queue.time_tail(t) == pytest.approx(np.mean(waits + services > t), abs=0.004)


@pytest.mark.parametrize(
    "service",
    [
        ExponentialService(mean_s=0.4),
        GammaService(mean_s=0.4, variation=0.3),
        HyperexponentialService(mean_s=0.4, variation=3.0),
        LognormalService(mean_s=0.4, variation=0.8),
        FixedService(mean_s=0.4),
        ObservedService.of([0.1, 0.7]),
    ],
    ids=lambda s: type(s).__name__,
)
def test_transforms_hold_their_moments(service):
    h = 1e-4
    first = (1 - service.transform(np.array([h]))[0]) / h
    second = (service.transform(np.array([2 * h]))[0] - 2 * service.transform(np.array([h]))[0] + 1) / h**2
    assert first == pytest.approx(0.4, rel=1e-3)
    assert second == pytest.approx(service.mean_s**2 * (1 + service.scv), rel=2e-2)


def test_many_observed_times_are_merged_without_moving_the_mean():
    times = np.random.default_rng(0).lognormal(0.0, 0.8, 50_000)
    service = ObservedService.of(times)
    assert len(service.times_s) <= 1000
    assert service.mean_s == pytest.approx(times.mean(), rel=1e-12)
    assert service.scv == pytest.approx(times.var() / times.mean() ** 2, rel=1e-3)
    assert sum(service.weights) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("service", "law"),
    [
        (ExponentialService(mean_s=0.4), stats.expon(scale=0.4)),
        (GammaService(mean_s=0.4, variation=0.3), stats.gamma(1 / 0.3, scale=0.12)),
        (
            LognormalService(mean_s=0.4, variation=0.8),
            stats.lognorm(np.sqrt(np.log(1.8)), scale=0.4 / np.sqrt(1.8)),
        ),
        (ObservedService.of([0.1, 0.7, 0.7]), stats.rv_discrete(values=([1, 7], [1 / 3, 2 / 3]))),
        (FixedService(mean_s=0.4), stats.rv_discrete(values=([4], [1.0]))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_service_tails_are_scipy_s(service, law):
    times = np.array([0.02, 0.1, 0.35, 0.4, 0.7, 2.5])
    scale = 10 if isinstance(law, stats.rv_discrete) else 1
    assert service.tail(times) == pytest.approx(law.sf(times * scale), abs=1e-7)


def test_balanced_hyperexponential_tail_integrates_to_its_mean():
    service = HyperexponentialService(mean_s=0.4, variation=3.0)
    assert integrate.quad(service.tail, 0, 40)[0] == pytest.approx(0.4)
    assert 2 * integrate.quad(lambda t: t * service.tail(t), 0, 60)[0] == pytest.approx(0.16 * 4)


@settings(deadline=None, max_examples=50)
@given(LOADS, st.floats(1, 99.9))
def test_exponential_service_is_mm1(rho, percentile):
    general = MG1(arrivals_per_s=rho, service=ExponentialService(mean_s=1.0))
    exact = MM1(arrivals_per_s=rho, service_s=1.0)
    assert general.time_quantile_s(percentile) == pytest.approx(exact.time_quantile_s(percentile), rel=1e-5)
    assert general.mean_wait_s == pytest.approx(exact.mean_wait_s)


@settings(deadline=None, max_examples=30)
@given(LOADS)
def test_even_work_waits_half_as_long_and_all_tails_grow_with_load(rho):
    even, random = MD1(arrivals_per_s=rho, service_s=1.0), MM1(arrivals_per_s=rho, service_s=1.0)
    assert even.mean_wait_s == pytest.approx(random.mean_wait_s / 2)
    busier = MD1(arrivals_per_s=min(0.995, rho * 1.05), service_s=1.0)
    for t in (0.0, 0.6, 3.3):
        assert busier.wait_tail(t) >= even.wait_tail(t) - 1e-12


@pytest.mark.parametrize("rate", [1.0, 1.2, 50.0])
def test_a_saturated_queue_has_no_latency(rate):
    for queue in (
        MM1(arrivals_per_s=rate, service_s=1.0),
        MD1(arrivals_per_s=rate, service_s=1.0),
        MG1(arrivals_per_s=rate, service=ExponentialService(mean_s=1.0)),
    ):
        assert queue.state is State.SATURATED
        assert queue.mean_time_s == queue.mean_wait_s == queue.time_quantile_s(50) == inf
        assert queue.mean_in_system == inf
        assert queue.time_tail(1e9) == 1.0


def test_states_follow_the_load():
    states = [MM1(arrivals_per_s=r, service_s=1.0).state for r in (0.0, 0.89, 0.9, 0.999, 1.0)]
    assert states == [
        State.STABLE,
        State.STABLE,
        State.NEAR_SATURATION,
        State.NEAR_SATURATION,
        State.SATURATED,
    ]


def test_an_idle_queue_only_serves():
    queue = MD1(arrivals_per_s=0.0, service_s=2.0)
    assert queue.wait_quantile_s(99.9) == 0.0
    assert queue.time_quantile_s(99.9) == pytest.approx(2.0)
    assert queue.mean_waiting == 0.0


def test_replicas_hold_the_limit_and_one_less_does_not():
    rates, services = np.array([40.0, 137.0, 3.0]), np.array([0.02, 0.02, 0.01])
    counts = mm1_replicas_for(arrivals_per_s=rates, service_s=services, percentile=95, limit_s=0.15)
    for rate, service, n in zip(rates, services, counts, strict=True):
        held = [
            mm1_time_quantile_s(percentile=95, utilisation=rate / k * service, service_s=service) <= 0.15
            for k in (n, max(1, n - 1))
        ]
        assert held == [True, n == 1]


def test_no_number_of_replicas_helps_a_service_that_is_too_slow():
    assert mm1_replicas_for(arrivals_per_s=1, service_s=1.0, percentile=99, limit_s=2.0) == inf
    assert mm1_mean_time_s(utilisation=np.array([0.5, 1.0, 2.0]), service_s=1.0).tolist() == [2.0, inf, inf]


@pytest.mark.parametrize(
    "call",
    [
        lambda: MM1(arrivals_per_s=-1, service_s=1),
        lambda: MD1(arrivals_per_s=1, service_s=0),
        lambda: MM1(arrivals_per_s=0.5, service_s=1).time_quantile_s(100),
        lambda: HyperexponentialService(mean_s=1, variation=0.5),
        lambda: ObservedService.of([]),
    ],
)
def test_refusals(call):
    with pytest.raises(InputError):
        call()
