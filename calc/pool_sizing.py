"""Sizing pools of their own for prompts and for decoding, at roofline and expected fidelity: `pools_of`."""

from __future__ import annotations

from math import ceil

import numpy as np

from calc.arrays import first
from calc.errors import InputError
from calc.expected import Replica
from calc.provenance import Estimate
from calc.queueing.closed_forms import md1_mean_wait_s
from calc.scenario import Scenario
from calc.sizing import FleetStep

MOST_PREFILL = 8
"""Times the replicas that prompts keep busy: a TTFT target that even those miss is not met by more."""
ROUNDING = 1e-9
"""The last digits of a float: they are worth no replica more, and a pool is at least so far from never being idle."""


def pools_of(replica: Replica, scenario: Scenario, *, batch: int) -> tuple[FleetStep, float, Estimate]:
    """Step 5 with pools of their own: replicas that prefill and replicas that decode, the concurrency of these, and TTFT.

    Prompts wait for each other as in M/D/1; prefill replicas are added until the TTFT target is kept. Both pools use one
    layout. Raises InputError for users who wait, whose rate follows from their answers, and for text that may be forgotten.
    """
    workload, point = replica.workload, replica.point
    if workload.rate_per_s is None:
        raise InputError(
            "disaggregated", True, "pools are sized for requests per second, not for users who wait"
        )
    if scenario.reuse_after_s is not None:
        raise InputError(
            "disaggregated",
            True,
            "text that comes back is planned for replicas that are all alike",
            next_step="Leave out when it comes back, or the pools.",
        )
    rate = workload.rate_per_s * workload.peak_factor
    schedulers = replica.model.layout.schedulers
    prompt_s = first(point.prefill_s)
    prefill_busy = rate * prompt_s / schedulers
    decoding = np.asarray(point.decoding, dtype=float) * schedulers
    per_s = np.maximum.accumulate(decoding / (point.tpot_s.best * workload.output.mean_tokens))
    decode_busy = rate / float(np.interp(batch, decoding, per_s))
    decoders = max(1, ceil(decode_busy * (1.0 + scenario.headroom) - ROUNDING))
    users = float(np.interp(rate / decoders, per_s, replica.users))
    alone = replica.at(point.ttft_s, users)
    prefills = max(1, ceil(prefill_busy * (1.0 + scenario.headroom) - ROUNDING))
    most = MOST_PREFILL * prefills
    wait_s = _prompt_wait_s(prefill_busy / prefills, prompt_s)
    while scenario.ttft_s is not None and alone.best + wait_s > scenario.ttft_s and prefills < most:
        prefills += 1
        wait_s = _prompt_wait_s(prefill_busy / prefills, prompt_s)
    ttft = alone.plus(Estimate.exactly(wait_s, alone.provenance))
    e2e = ttft.plus(replica.at(point.tpot_s, users).scaled(max(workload.output.mean_tokens - 1.0, 0.0)))
    replicas = prefills + decoders
    fleet = FleetStep(
        rate_per_s=rate,
        e2e_s=e2e,
        active=rate * e2e.best,
        prefill_busy=prefill_busy,
        decode_busy=decode_busy,
        replicas=replicas,
        utilization=(prefill_busy + decode_busy) / replicas,
        prefill_replicas=prefills,
        users_of_decoder=users,
    )
    return fleet, users, ttft


def _prompt_wait_s(busy: float, prompt_s: float) -> float:
    """Mean wait of a prompt at a prefill replica that is `busy`; every prompt takes the same time."""
    return float(md1_mean_wait_s(utilisation=min(busy, 1.0 - ROUNDING), service_s=prompt_s))
