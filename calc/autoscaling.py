"""A fleet that follows the day against one that is always there: what it saves, and whom it fails while replicas start."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from calc.arrays import ceil_count, not_negative, positive_finite
from calc.cost import usd_of_replica_hours
from calc.errors import InputError
from calc.units import DAY_S, HOUR_S

MAX_INTERVALS = 1_000_000


def replica_start_s(
    *, weight_bytes_per_gpu: float, read_bytes_per_s: float, provision_s: float = 0.0, warm_up_s: float = 0.0
) -> float:
    """Seconds from the decision to a replica that serves: a machine, its share of the weights, warm-up.

    `read_bytes_per_s` is the speed of disk or network for one GPU's share; `warm_up_s` holds compilation and graph
    capture.

    Source: definition. Ignores: unpacking of images, and links that many replicas share while they start.
    """
    positive_finite(weight_bytes_per_gpu=weight_bytes_per_gpu, read_bytes_per_s=read_bytes_per_s)
    not_negative(provision_s=provision_s, warm_up_s=warm_up_s)
    return provision_s + weight_bytes_per_gpu / read_bytes_per_s + warm_up_s


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDay:
    """Replicas over one day, by interval: `paid` for, `ready` to serve; and the share of requests beyond the ready ones."""

    interval_s: float
    paid: Any
    ready: Any
    beyond_capacity_share: float

    @property
    def replica_hours(self) -> float:
        """Replica hours that are paid for in the day."""
        return float(np.sum(self.paid)) * self.interval_s / HOUR_S

    @property
    def most(self) -> int:
        return int(np.max(self.paid))

    def usd_per_day(self, *, gpus_per_replica: int, usd_per_gpu_hour: float) -> float:
        """USD of the day."""
        return float(
            usd_of_replica_hours(
                replica_hours=self.replica_hours, gpus=gpus_per_replica, usd_per_gpu_hour=usd_per_gpu_hour
            )
        )


def fixed_fleet(*, rates_per_s: Any, replica_rate_per_s: float, fewest: int = 1) -> FleetDay:
    """A fleet for the busiest interval, all day; `rates_per_s` are those of equal parts of a day.

    `replica_rate_per_s`: requests per second that one replica serves within its targets.

    Source: definition. Ignores: days that are busier than this one.
    """
    rates, _ = _checked(rates_per_s, replica_rate_per_s, fewest)
    needed = max(fewest, int(ceil_count(rates.max() / replica_rate_per_s)))
    always = np.full(rates.size, needed)
    return FleetDay(interval_s=DAY_S / rates.size, paid=always, ready=always, beyond_capacity_share=0.0)


def following_fleet(
    *,
    rates_per_s: Any,
    replica_rate_per_s: float,
    start_s: float,
    hold_s: float = 0.0,
    spare: int = 0,
    fewest: int = 1,
) -> FleetDay:
    """A fleet that pays for what each interval needs, and `spare` more; the day repeats.

    A replica is paid from the decision on and serves `start_s` later; it is given up only when it was not needed for
    `hold_s`. Requests above the ready replicas' rate count as beyond capacity: they wait or miss their targets.

    Source: the reactive rule of the usual autoscalers (Kubernetes' horizontal pod autoscaler with a stabilisation
    window). Ignores: schedules and forecasts, which start replicas ahead; how long the requests beyond capacity wait.
    """
    rates, interval_s = _checked(rates_per_s, replica_rate_per_s, fewest)
    not_negative(start_s=start_s, hold_s=hold_s, spare=spare)
    if start_s + hold_s > DAY_S:
        raise InputError("start_s", start_s, "starting and holding must take less than the day that repeats")
    needed = np.maximum(fewest, ceil_count(rates / replica_rate_per_s) + spare)
    paid = _over_last(needed, ceil(hold_s / interval_s), np.maximum)
    ready = _over_last(paid, ceil(start_s / interval_s), np.minimum)
    beyond = np.maximum(rates - ready * replica_rate_per_s, 0.0).sum()
    share = float(beyond / rates.sum()) if rates.sum() else 0.0
    return FleetDay(interval_s=interval_s, paid=paid, ready=ready, beyond_capacity_share=share)


def _over_last(values: Any, intervals: int, extreme: Any) -> Any:
    """The largest or smallest value over each interval and the `intervals` before it, around the day."""
    found = values.copy()
    for back in range(1, min(intervals, values.size - 1) + 1):
        found = extreme(found, np.roll(values, back))
    return found


def _checked(rates_per_s: Any, replica_rate_per_s: float, fewest: int) -> tuple[Any, float]:
    rates = np.atleast_1d(np.asarray(rates_per_s, dtype=float))
    not_negative(rates_per_s=rates, fewest=fewest)
    positive_finite(replica_rate_per_s=replica_rate_per_s)
    if rates.ndim != 1 or not 1 <= rates.size <= MAX_INTERVALS:
        raise InputError("rates_per_s", rates.shape, f"give 1 to {MAX_INTERVALS:,} equal parts of a day")
    return rates, DAY_S / rates.size
