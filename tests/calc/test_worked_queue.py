"""The numbers of *Queueing*, worked out: each formula gives the number shown, and the tails are those of other sources."""

from math import exp, factorial, floor, isclose

import pytest
from scipy import stats

from calc.asked_queue import AskedQueue, arrivals_at, mean_in_services
from calc.formulas import FORMULAS
from calc.queue_curves import QueueKind
from calc.queueing import LoadDependentSharing, MMc
from calc.queueing.tails import md1_time_tail, mmc_time_tail, sharing_time_tail
from calc.worked.queue import queue_lines, worked_queue

KINDS = pytest.mark.parametrize("kind", QueueKind)


def asked(kind, *, rate=160.0, replicas=4, limit_s=0.15):
    return AskedQueue(kind=kind, arrivals_per_s=rate, service_s=0.02, replicas=replicas, limit_s=limit_s)


def value(line):
    return float(FORMULAS[line.formula].value(line.inputs))


@KINDS
@pytest.mark.parametrize(("rate", "replicas"), [(40.0, 1), (160.0, 4), (3.0, 7)])
def test_every_number_of_the_page_comes_out_again(kind, rate, replicas):
    question = asked(kind, rate=rate, replicas=replicas)
    lines = queue_lines(question)
    assert not [(line, value(line)) for line in lines if not isclose(value(line), line.result, rel_tol=1e-9)]
    found = worked_queue(question)
    assert set(found) == {"load", "mean", "p95", "in_system", "needed"}
    assert all(line in lines for line in found.values())


@KINDS
def test_a_percentile_is_where_one_in_twenty_stays_longer(kind):
    found = worked_queue(asked(kind))["p95"]
    expected = asked(kind).p95_s if kind is QueueKind.MM1 else 0.05
    assert value(found) == pytest.approx(expected, rel=1e-6)


@KINDS
def test_the_replicas_needed_keep_the_limit_and_one_less_does_not(kind):
    question = asked(kind)
    found = worked_queue(question)["needed"]
    if kind is QueueKind.MM1:
        assert value(found) == question.replicas_needed  # the search and the closed form
        return
    assert value(found) <= 0.05
    fewer = AskedQueue(
        kind=kind,
        arrivals_per_s=160.0,
        service_s=0.02,
        replicas=int(question.replicas_needed) - 1,
        limit_s=0.15,
    )
    assert fewer.queue.saturated or fewer.p95_s > 0.15


@KINDS
def test_a_saturated_queue_has_no_times_and_can_still_be_helped(kind):
    found = worked_queue(asked(kind, rate=400.0))
    assert set(found) == {"load", "needed"}
    assert {line.formula for line in queue_lines(asked(kind, rate=400.0))} >= {"utilisation"}


def test_a_limit_below_the_service_has_no_number_of_replicas():
    assert "needed" not in worked_queue(asked(QueueKind.MD1, limit_s=0.01))


@pytest.mark.parametrize("rho", [0.2, 0.8, 0.95])
@pytest.mark.parametrize("services", [1.0, 1.7, 3.2, 8.9])
def test_even_work_has_the_tail_of_erlangs_sum(rho, services):
    """The alternating sum of 1909 as it is printed, exact enough while it is short."""
    x = services - 1.0
    terms = ((-rho * (x - j)) ** j / factorial(j) * exp(rho * (x - j)) for j in range(floor(x) + 1))
    tail = md1_time_tail(t_s=services * 0.02, utilisation=rho, service_s=0.02)
    assert tail == pytest.approx(1.0 - (1.0 - rho) * sum(terms), rel=1e-9)


def test_shared_service_has_the_tail_of_its_chain():
    """The integral of Flatto against the birth-death chain followed through (uniformisation): two ways to one number."""
    for rho in (0.1, 0.5, 0.8, 0.95):
        chain = LoadDependentSharing(arrivals_per_s=rho / 0.02, completions_per_s=(50.0,))
        for percentile, t_s in zip((50, 95, 99), chain.time_quantiles_s((50, 95, 99)), strict=True):
            tail = sharing_time_tail(t_s=t_s, utilisation=rho, service_s=0.02)
            assert tail == pytest.approx(1.0 - percentile / 100, rel=1e-6)
    assert sharing_time_tail(t_s=0.03, utilisation=0.0, service_s=0.02) == pytest.approx(exp(-1.5))


def test_one_line_for_many_servers_has_the_tail_of_a_wait_and_a_service():
    queue = MMc(arrivals_per_s=160.0, service_s=0.02, servers=4)
    tail = mmc_time_tail(t_s=0.1, service_s=0.02, waiting_share=queue.waiting_share, line_clears_per_s=40.0)
    wait, service = stats.expon(scale=1 / 40), stats.expon(scale=0.02)
    waited = service.sf(0.1) + service.expect(lambda u: wait.sf(0.1 - u), lb=0.0, ub=0.1)
    assert tail == pytest.approx(
        (1 - queue.waiting_share) * service.sf(0.1) + queue.waiting_share * waited, rel=1e-6
    )


def test_what_moves_the_load_and_halves_the_work():
    question = asked(QueueKind.MM1, rate=40.0, replicas=1)
    assert arrivals_at(load=0.95, service_s=0.02, servers=2) == pytest.approx(95.0)
    assert mean_in_services(QueueKind.MM1, load=0.8, servers=1) == pytest.approx(5.0)
    assert question.served_twice_as_fast.load == pytest.approx(0.4)
    assert question.gain_of_twice_as_fast == pytest.approx(6.0)  # worked case mm1-int8: 100 ms and 16.7 ms
