"""A day by hand, and what must hold for every day."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.autoscaling import fixed_fleet, following_fleet, replica_start_s
from calc.errors import InputError

HOURS = np.array([5.0] * 8 + [20.0] * 8 + [40.0] * 4 + [5.0] * 4)  # requests per second, 24 hours
DAYS = st.lists(st.floats(0, 1000), min_size=1, max_size=96)


def test_a_fixed_fleet_by_hand():
    """40 requests/s at 10 a replica: 4 replicas, 96 replica hours, 2 GPUs at 2 USD each."""
    day = fixed_fleet(rates_per_s=HOURS, replica_rate_per_s=10.0)
    assert day.most == 4
    assert day.replica_hours == pytest.approx(96)
    assert day.usd_per_day(gpus_per_replica=2, usd_per_gpu_hour=2.0) == pytest.approx(384)


def test_a_following_fleet_by_hand():
    """1, 2, 4, 1 replicas for 8, 8, 4, 4 hours: 44 replica hours; a start of one hour misses the first busy hours."""
    day = following_fleet(rates_per_s=HOURS, replica_rate_per_s=10.0, start_s=3600)
    assert day.replica_hours == pytest.approx(44)
    assert day.ready[8] == 1
    assert day.ready[16] == 2
    assert day.beyond_capacity_share == pytest.approx((10 + 20) / HOURS.sum())


def test_holding_costs_and_spares_help():
    held = following_fleet(rates_per_s=HOURS, replica_rate_per_s=10.0, start_s=0, hold_s=2 * 3600)
    assert held.replica_hours == pytest.approx(44 + 2 * 3)
    spare = following_fleet(rates_per_s=HOURS, replica_rate_per_s=10.0, start_s=3600, spare=1)
    assert spare.beyond_capacity_share == pytest.approx(10 / HOURS.sum())


def test_a_start_by_hand():
    """140 GB over 8 GPUs at 1 GB/s each is 17.5 s."""
    assert replica_start_s(
        weight_bytes_per_gpu=140e9 / 8, read_bytes_per_s=1e9, provision_s=60, warm_up_s=30
    ) == pytest.approx(107.5)


@settings(deadline=None, max_examples=80)
@given(DAYS, st.floats(0.5, 50), st.floats(0, 20_000), st.floats(0, 20_000))
def test_following_is_never_dearer_than_fixed_and_starts_only_hurt(rates, replica_rate, start_s, hold_s):
    settings_of_day = {"rates_per_s": rates, "replica_rate_per_s": replica_rate}
    fixed = fixed_fleet(**settings_of_day)
    slow = following_fleet(**settings_of_day, start_s=start_s, hold_s=hold_s)
    instant = following_fleet(**settings_of_day, start_s=0, hold_s=hold_s)
    assert slow.replica_hours <= fixed.replica_hours + 1e-9
    assert instant.beyond_capacity_share == pytest.approx(0.0, abs=1e-8)
    assert slow.beyond_capacity_share >= instant.beyond_capacity_share - 1e-12
    assert np.all(slow.ready <= slow.paid)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.1, 500), st.integers(1, 100))
def test_a_flat_day_needs_the_same_either_way(rate, parts):
    flat = [rate] * parts
    following = following_fleet(rates_per_s=flat, replica_rate_per_s=7.0, start_s=600)
    assert following.replica_hours == pytest.approx(
        fixed_fleet(rates_per_s=flat, replica_rate_per_s=7.0).replica_hours
    )
    assert following.beyond_capacity_share == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fixed_fleet(rates_per_s=[], replica_rate_per_s=1.0),
        lambda: fixed_fleet(rates_per_s=[-1.0], replica_rate_per_s=1.0),
        lambda: following_fleet(rates_per_s=[1.0], replica_rate_per_s=0.0, start_s=0),
        lambda: following_fleet(rates_per_s=[1.0], replica_rate_per_s=1.0, start_s=2e5),
        lambda: replica_start_s(weight_bytes_per_gpu=1e9, read_bytes_per_s=0),
    ],
)
def test_refusals(call):
    with pytest.raises(InputError):
        call()
