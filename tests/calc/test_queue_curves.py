"""Latency curves against the worked queues, other formulas of the same queues, and simulations with their errors."""

from math import inf, log

import numpy as np
import pytest

from calc.queue_curves import QueueKind, queue_curve, queue_of, replicas_for, simulated_points
from calc.queueing import mm1_replicas_for


@pytest.mark.reference
def test_the_curve_is_the_worked_one(worked):
    case = worked["mm1-40-50"]
    curve = queue_curve(QueueKind.MM1, service_s=1 / case["in"]["services_per_s"])
    at = float(case["want"]["utilisation"])
    assert 1e3 * np.interp(at, curve.utilisation, curve.p95_s) == pytest.approx(
        case["want"]["p95_ms"], rel=5e-3
    )
    times = [
        queue_of(QueueKind.MM1, load=load, service_s=1.0).mean_time_s
        for load in worked["mm1-blow-up"]["in"]["utilisation"]
    ]
    assert times == pytest.approx(worked["mm1-blow-up"]["want"])


@pytest.mark.reference
def test_replicas_for_a_p95_are_the_worked_ones(worked):
    case = worked["replicas-p95-150"]
    given = case["in"]
    found = [
        replicas_for(
            QueueKind.MM1, arrivals_per_s=given["arrivals_per_s"], service_s=s, limit_s=given["p95_limit_s"]
        )
        for s in given["service_s"]
    ]
    assert found == case["want"]


@pytest.mark.parametrize("limit_s", [0.061, 0.07, 0.15, 3.0])
def test_replicas_by_search_are_those_of_the_closed_form(limit_s):
    found = replicas_for(QueueKind.MM1, arrivals_per_s=130.0, service_s=0.020, limit_s=limit_s)
    assert found == mm1_replicas_for(arrivals_per_s=130.0, service_s=0.020, percentile=95, limit_s=limit_s)


def test_no_number_of_replicas_makes_the_service_shorter():
    assert replicas_for(QueueKind.MD1, arrivals_per_s=40.0, service_s=0.020, limit_s=0.019) == inf
    assert (
        replicas_for(QueueKind.MMC, arrivals_per_s=40.0, service_s=0.020, limit_s=0.020 * log(20) - 1e-6)
        == inf
    )


def test_a_shared_line_needs_no_more_replicas_than_lines_apart():
    for limit_s in (0.07, 0.1, 0.3):
        apart, together = (
            replicas_for(kind, arrivals_per_s=500.0, service_s=0.020, limit_s=limit_s)
            for kind in (QueueKind.MM1, QueueKind.MMC)
        )
        assert together <= apart


def test_sharing_has_the_mean_of_the_line_and_a_longer_tail():
    line = queue_curve(QueueKind.MM1, service_s=0.020)
    shared = queue_curve(QueueKind.SHARING, service_s=0.020)
    # insensitivity: E[T] = S / (1 - rho) (Kleinrock 1976, section 4.4)
    assert shared.mean_s == pytest.approx([0.020 / (1 - load) for load in shared.utilisation], rel=1e-5)
    assert shared.p99_s[20] > line.p99_s[20]


@pytest.mark.parametrize("kind", QueueKind)
@pytest.mark.parametrize("seed", [1, 2])
def test_20_000_simulated_requests_lie_within_three_standard_errors(kind, seed):
    (point,) = simulated_points(kind, service_s=0.020, loads=(0.8,), requests=20_000, seed=seed, servers=3)
    assert point.errors_apart <= 3
    assert point.standard_error_s < 0.1 * point.mean_s
    assert point.arrivals_per_s * point.whole_mean_s == pytest.approx(point.in_system, rel=1e-9)
    if kind is QueueKind.MM1:
        assert abs(point.mean_s - 5 * 0.020) <= 3 * point.standard_error_s  # worked case mm1-80-percent


def test_random_work_waits_twice_as_long_as_even_work():
    random, even = (queue_of(kind, load=0.8, service_s=0.020) for kind in (QueueKind.MM1, QueueKind.MD1))
    assert even.mean_wait_s == pytest.approx(random.mean_wait_s / 2)  # worked case md1-half-wait
