"""Processor sharing, the decode fixed point, and bulk service: theory, explicit chains, simulation, real traffic."""

from math import inf

import numpy as np
import pytest
import simpy
from decoding_queue import decoding_queue
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.sparse import lil_matrix
from scipy.sparse.linalg import expm_multiply

from calc.errors import InputError
from calc.queueing import (
    MD1,
    MM1,
    AffineStep,
    BulkService,
    FixedService,
    LoadDependentSharing,
    LognormalService,
    MMc,
    ServiceSpread,
    affine_decode_load,
    decode_completions_per_s,
    decode_load,
    expected_longest,
    sharing_mean_time_s,
    simulate_sharing,
    static_batch_service_s,
)
from calc.saturation import State

DECODE = {"arrivals_per_s": 6.0, "output_tokens": 256, "step_s": 0.0127 + 0.000257 * np.arange(1, 129)}


# ---- processor sharing ----------------------------------------------------------------------------------------


def test_sharing_known_value():
    assert sharing_mean_time_s(size_s=2.0, utilisation=0.7) == pytest.approx(6.66667, rel=1e-6)
    assert sharing_mean_time_s(size_s=2.0, utilisation=np.array([0.5, 1.0])).tolist() == [4.0, inf]


def test_servers_that_do_not_slow_each_other_are_mmc():
    exact = MMc(arrivals_per_s=20.0, service_s=1 / 3, servers=8)
    shared = LoadDependentSharing(
        arrivals_per_s=20.0, completions_per_s=tuple(3.0 * n for n in range(1, 9)), slots=8
    )
    assert shared.mean_time_s == pytest.approx(exact.mean_time_s)
    assert shared.mean_wait_s == pytest.approx(exact.mean_wait_s)
    for percentile, found in zip((50, 90, 99), shared.time_quantiles_s((50, 90, 99)), strict=True):
        assert found == pytest.approx(exact.time_quantile_s(percentile), rel=1e-6)


def test_one_slot_is_a_line():
    line = LoadDependentSharing(arrivals_per_s=8.0, completions_per_s=(10.0,), slots=1)
    assert line.time_quantile_s(99) == pytest.approx(2.302585, rel=1e-6)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.05, 0.95))
def test_a_constant_rate_has_the_mean_of_mm1_and_longer_tails(rho):
    shared = LoadDependentSharing(arrivals_per_s=rho, completions_per_s=(1.0,))
    line = MM1(arrivals_per_s=rho, service_s=1.0)
    assert shared.mean_time_s == pytest.approx(line.mean_time_s)
    assert shared.time_quantile_s(99) > line.time_quantile_s(99)
    assert shared.time_quantile_s(50) < line.time_quantile_s(50)


def test_quantiles_agree_with_an_explicit_chain():
    """The followed request with every number before and behind it as a state of its own, by scipy's exponential."""
    slots, rates, arrivals, top = 2, (1.0, 1.5), 1.0, 60
    queue = LoadDependentSharing(arrivals_per_s=arrivals, completions_per_s=rates, slots=slots)
    chances = queue.numbers()[:top]
    serving = {n: n for n in range(top)}  # n others, the followed one runs
    waiting = {}
    for before in range(slots, top):
        for behind in range(top - before):
            waiting[before, behind] = top + len(waiting)
    generator = lil_matrix((top + len(waiting),) * 2)

    def move(a, b, rate):
        generator[a, a] -= rate
        if b is not None:
            generator[a, b] += rate

    for n in range(top):
        running = min(n + 1, slots)
        total = rates[running - 1]
        move(n, None, total / running)
        if n:
            move(n, serving[n - 1], total * (running - 1) / running)
        if n + 1 < top:
            move(n, serving[n + 1], arrivals)
    for (before, behind), state in waiting.items():
        entered = serving[before - 1 + behind] if before == slots else waiting[before - 1, behind]
        move(state, entered, rates[-1])
        if (before, behind + 1) in waiting:
            move(state, waiting[before, behind + 1], arrivals)
    start = np.zeros(generator.shape[0])
    for n, chance in enumerate(chances):
        start[serving[n] if n < slots else waiting[n, 0]] = chance
    for percentile, time in zip((50, 90, 99), queue.time_quantiles_s((50, 90, 99)), strict=True):
        left = expm_multiply(generator.T.tocsr() * time, start).sum()
        assert left == pytest.approx(1 - percentile / 100, rel=2e-4)


def rates_of(queue):
    """Completions per second by the number that runs, without an array for each call."""
    rates = queue.rate(np.arange(2000)).tolist()
    return lambda n: rates[min(n, 1999)]


@pytest.mark.parametrize("slots", [36, 10_000])
def test_decode_sharing_agrees_with_simulation(slots):
    """With 36 slots the batch is at 86% of its capacity and some wait in line; with 10,000 nobody does."""
    queue = decoding_queue(**{**DECODE, "arrivals_per_s": 5.4}, slots=slots)
    times = simulate_sharing(
        gaps_s=np.random.default_rng(3).exponential(1 / 5.4, 40_000),
        sizes=np.random.default_rng(4).exponential(1.0, 40_000),
        rate_per_s=rates_of(queue),
        slots=slots,
    ).times_s[2000:]
    assert (queue.mean_wait_s > 0.1) == (slots == 36)
    assert times.mean() == pytest.approx(queue.mean_time_s, rel=0.06)
    for percentile, expected in zip((50, 90, 99), queue.time_quantiles_s((50, 90, 99)), strict=True):
        assert np.percentile(times, percentile) == pytest.approx(expected, rel=0.08)


def test_means_do_not_depend_on_the_kind_of_sizes_when_nobody_waits():
    queue = decoding_queue(**DECODE)
    times = simulate_sharing(
        gaps_s=np.random.default_rng(8).exponential(1 / DECODE["arrivals_per_s"], 25_000),
        sizes=np.ones(25_000),
        rate_per_s=rates_of(queue),
    ).times_s[2000:]
    assert times.mean() == pytest.approx(queue.mean_time_s, rel=0.03)


@pytest.mark.parametrize("slots", [None, 44])
@pytest.mark.parametrize(
    "sizes",
    [FixedService(mean_s=1.0), LognormalService(mean_s=1.0, variation=0.42)],
    ids=["fixed", "lognormal"],
)
def test_percentiles_of_other_sizes_agree_with_simulation(slots, sizes):
    """Lognormal with the variation of outputs in the Azure conversation trace (0.65 squared)."""
    rng = np.random.default_rng(0)
    drawn = np.ones(40_000)
    if sizes.scv:
        spread = np.sqrt(np.log(1 + sizes.scv))
        drawn = rng.lognormal(-(spread**2) / 2, spread, 40_000)
    queue = decoding_queue(**DECODE, slots=slots)
    run = simulate_sharing(
        gaps_s=rng.exponential(1 / DECODE["arrivals_per_s"], 40_000),
        sizes=drawn,
        rate_per_s=rates_of(queue),
        slots=slots,
    )
    percentiles = (50, 90, 99)
    for percentile, found in zip(percentiles, queue.time_quantiles_s(percentiles, sizes=sizes), strict=True):
        assert found == pytest.approx(np.percentile(run.times_s[2000:], percentile), rel=0.06)


def test_a_saturated_batch_has_no_latency_but_names_its_capacity():
    queue = decoding_queue(**{**DECODE, "arrivals_per_s": 1000.0}, slots=64)
    assert queue.state is State.SATURATED
    assert queue.mean_time_s == queue.time_quantile_s(50) == inf
    assert queue.mean_running == 64
    rates = decode_completions_per_s(step_s=DECODE["step_s"], output_tokens=256)
    assert queue.full_rate_per_s == pytest.approx(rates[63])


def test_near_saturation_means_stay_and_quantiles_refuse_by_name():
    queue = LoadDependentSharing(arrivals_per_s=0.999_99, completions_per_s=(1.0,))
    assert queue.state is State.NEAR_SATURATION
    assert queue.mean_time_s == pytest.approx(1e5, rel=1e-4)
    with pytest.raises(InputError, match="too near to 1"):
        queue.time_quantile_s(99)


# ---- the decode fixed point -----------------------------------------------------------------------------------

AFFINE = AffineStep(
    fixed_s=7.5e-3, prefill_s_per_token=0.05e-3, decode_s_per_sequence=0.02e-3, kv_s_per_token=0.00015e-3
)


@settings(deadline=None, max_examples=50)
@given(st.floats(0.01, 10), st.floats(1, 2000), st.floats(1e-3, 0.1), st.floats(1e-6, 1e-3))
def test_the_fixed_point_balances(rate, output, fixed, slope):
    load = decode_load(
        rate_per_s=rate, output_tokens=output, step_s=lambda b: fixed + slope * b, largest_batch=512
    )
    if load.state is State.SATURATED:
        assert rate * output >= 512 / (fixed + slope * 512) * (1 - 1e-12)
        assert load.step_s == inf
        assert load.batch == 512
        assert load.full_step_s == pytest.approx(fixed + slope * 512)
    else:
        assert load.batch == pytest.approx(rate * output * load.step_s, rel=1e-6)
        x = rate * output * slope
        if load.batch > 1:
            assert load.batch == pytest.approx(rate * output * fixed / (1 - x), rel=1e-6)


def test_affine_and_general_fixed_points_agree():
    step = AffineStep(fixed_s=0.01, prefill_s_per_token=0.0, decode_s_per_sequence=1e-4, kv_s_per_token=1e-7)
    closed = affine_decode_load(
        step=step, rate_per_s=5, input_tokens=500, output_tokens=200, context_tokens=600
    )
    solved = decode_load(
        rate_per_s=5, output_tokens=200, step_s=lambda b: 0.01 + b * (1e-4 + 1e-7 * 600), largest_batch=4096
    )
    assert closed.batch == pytest.approx(solved.batch, rel=1e-9)
    assert closed.step_s == pytest.approx(solved.step_s, rel=1e-9)


def test_the_textbook_chat_needs_more_than_one_gpu():
    """10 requests/s of 256 tokens ask 2,560 tokens/s of a card that makes 2,390 at its 79 sequences."""
    load = decode_load(
        rate_per_s=10,
        output_tokens=256,
        step_s=lambda b: (26e9 + b * 640 * 819_200) / 2.04e12,
        largest_batch=79,
    )
    assert load.state is State.SATURATED
    assert load.utilisation == pytest.approx(2560 / 2390, rel=1e-3)


def test_overload_of_the_affine_step_is_named():
    load = affine_decode_load(
        step=AFFINE, rate_per_s=50, input_tokens=1000, output_tokens=200, context_tokens=1000
    )
    assert load.state is State.SATURATED
    assert load.step_s == inf


def test_a_step_that_shrinks_is_refused():
    with pytest.raises(InputError, match="shorter"):
        decode_load(rate_per_s=1, output_tokens=1, step_s=lambda b: 1 / b, largest_batch=8)


# ---- static batches -------------------------------------------------------------------------------------------


def test_a_batch_of_one_is_md1_or_mm1():
    assert BulkService(arrivals_per_s=0.8, service_s=(1.0,)).mean_wait_s == pytest.approx(
        MD1(arrivals_per_s=0.8, service_s=1.0).mean_wait_s, rel=1e-6
    )
    exponential = BulkService(arrivals_per_s=0.8, service_s=(1.0,), spread=ServiceSpread.EXPONENTIAL)
    assert exponential.mean_wait_s == pytest.approx(4.0, rel=1e-6)


@pytest.mark.parametrize(("rate", "batch"), [(0.5, 2), (3.0, 5), (7.0, 8)])
def test_exponential_batches_agree_with_baileys_root(rate, batch):
    """M/M[1,b]/1: while it serves, n wait with chance q·r^n, r the root of r^(b+1) - (λ + 1)·r + λ below one."""
    roots = np.roots([1.0, *[0.0] * (batch - 1), -(rate + 1.0), rate])
    r = next(x.real for x in roots if abs(x.imag) < 1e-12 and 0 < x.real < 1 - 1e-9)
    q = 1 / (1 / rate + 1 / (1 - r))
    queue = BulkService(arrivals_per_s=rate, service_s=(1.0,) * batch, spread=ServiceSpread.EXPONENTIAL)
    assert queue.mean_waiting == pytest.approx(q * r / (1 - r) ** 2, rel=1e-6)
    assert queue.busy_share == pytest.approx(1 - q / rate, rel=1e-6)


@pytest.mark.parametrize("start_at", [1, 4])
def test_static_batches_agree_with_simpy(start_at):
    service = tuple(0.5 + 0.25 * k for k in range(1, 5))
    rng = np.random.default_rng(17)
    environment, line, waits, sizes = simpy.Environment(), [], [], []
    arrived = environment.event()

    def arrivals():
        nonlocal arrived
        for gap in rng.exponential(1 / 2.0, 100_000):
            yield environment.timeout(gap)
            line.append(environment.now)
            arrived.succeed()
            arrived = environment.event()

    def server():
        while True:
            while len(line) < start_at:
                yield arrived
            batch, line[:] = line[:4], line[4:]
            waits.extend(environment.now - t for t in batch)
            sizes.append(len(batch))
            yield environment.timeout(service[len(batch) - 1])

    environment.process(arrivals())
    environment.process(server())
    environment.run(until=49_000)
    queue = BulkService(arrivals_per_s=2.0, service_s=service, start_at=start_at)
    assert np.mean(waits[1000:]) == pytest.approx(queue.mean_wait_s, rel=0.04)
    assert np.mean(sizes[300:]) == pytest.approx(queue.mean_batch, rel=0.02)


def test_a_static_batch_that_cannot_keep_up_is_saturated():
    queue = BulkService(arrivals_per_s=4.0, service_s=(1.0, 1.0, 1.0, 1.0))
    assert queue.state is State.SATURATED
    assert queue.mean_time_s == inf


def test_the_longest_of_a_batch():
    """Against scipy: the mean of the largest of 8 lognormal lengths, and the limits."""
    spread = np.sqrt(np.log(2.0))
    law = stats.lognorm(spread, scale=256 * np.exp(-(spread**2) / 2))
    drawn = law.rvs(size=(200_000, 8), random_state=1).max(axis=1).mean()
    assert expected_longest(mean_tokens=256, cv=1.0, batch=8) == pytest.approx(drawn, rel=0.01)
    assert expected_longest(mean_tokens=256, cv=0.0, batch=8) == 256
    assert expected_longest(mean_tokens=256, cv=1.0, batch=1) == 256


def test_static_service_from_a_step():
    services = static_batch_service_s(prefill_s=0.1, step_s=[0.01, 0.012], output_tokens=11)
    assert services == pytest.approx((0.1 + 10 * 0.01, 0.2 + 10 * 0.012))


@pytest.mark.parametrize(
    "call",
    [
        lambda: LoadDependentSharing(arrivals_per_s=1.0, completions_per_s=()),
        lambda: LoadDependentSharing(arrivals_per_s=1.0, completions_per_s=(2.0,), slots=0),
        lambda: LoadDependentSharing(arrivals_per_s=0.0, completions_per_s=(2.0,)),
        lambda: BulkService(arrivals_per_s=1.0, service_s=(1.0,), start_at=2),
        lambda: BulkService(arrivals_per_s=1.0, service_s=()),
    ],
)
def test_refusals(call):
    with pytest.raises(InputError):
        call()
