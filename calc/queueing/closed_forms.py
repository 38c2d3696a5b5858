"""Formulas that need no object: Little's law, and M/M/1 and M/D/1 means that broadcast over arrays.

Saturated queues give infinity, whatever the array.
"""

from __future__ import annotations

import numpy as np

from calc.arrays import Numbers, ceil_count, not_negative, positive_finite, scalar, share
from calc.queueing.base import check_percentile


def requests_in_system(*, arrivals_per_s: Numbers, time_in_system_s: Numbers) -> Numbers:
    """Little's law: the mean number in a system is the arrival rate times the mean time in it.

    Source: Little 1961 (Operations Research 9(3)). Ignores: nothing, as long as what arrives also leaves.
    """
    not_negative(arrivals_per_s=arrivals_per_s, time_in_system_s=time_in_system_s)
    return arrivals_per_s * time_in_system_s


def utilisation(*, arrivals_per_s: Numbers, service_s: Numbers, servers: Numbers = 1) -> Numbers:
    """The share of time that the servers are busy, λ·S/c; 1 and more is saturation.

    Source: utilisation law. Ignores: nothing.
    """
    not_negative(arrivals_per_s=arrivals_per_s)
    positive_finite(service_s=service_s, servers=servers)
    return arrivals_per_s * service_s / servers


def mm1_mean_time_s(*, utilisation: Numbers, service_s: Numbers) -> Numbers:
    """Mean time in an M/M/1 system, S/(1 - ρ): first come first served, or processor sharing.

    Source: Kleinrock 1975, Queueing Systems I, section 3.2. Ignores: bursts (arrivals are Poisson), and any service
    but an exponential one.
    """
    return _over_idle(1.0, utilisation, service_s)


def mm1_mean_wait_s(*, utilisation: Numbers, service_s: Numbers) -> Numbers:
    """Mean wait before service in M/M/1, ρ·S/(1 - ρ).

    Source: Kleinrock 1975, Queueing Systems I, section 3.2. Ignores: bursts, and any service but an exponential one.
    """
    return _over_idle(utilisation, utilisation, service_s)


def mean_time_s(*, mean_wait_s: Numbers, service_s: Numbers) -> Numbers:
    """Mean time in a system: the wait, then the service.

    Source: definition. Ignores: nothing.
    """
    return mean_wait_s + service_s


def md1_mean_wait_s(*, utilisation: Numbers, service_s: Numbers) -> Numbers:
    """Mean wait before service in M/D/1, ρ·S/(2·(1 - ρ)): half of M/M/1, because the work is even.

    Source: Pollaczek-Khinchine formula, Kleinrock 1975, section 5.6. Ignores: bursts.
    """
    return _over_idle(np.asarray(utilisation) / 2.0, utilisation, service_s)


def mg1_mean_wait_s(*, utilisation: Numbers, service_s: Numbers, service_scv: Numbers) -> Numbers:
    """Mean wait in M/G/1, ρ·S/(1 - ρ) · (1 + c_s²)/2: between M/D/1 (0) and M/M/1 (1), and above for uneven work.

    Source: Pollaczek-Khinchine formula, Kleinrock 1975, section 5.6. Ignores: bursts.
    """
    return kingman_mean_wait_s(
        utilisation=utilisation, service_s=service_s, arrival_scv=1.0, service_scv=service_scv
    )


def kingman_mean_wait_s(
    *, utilisation: Numbers, service_s: Numbers, arrival_scv: Numbers, service_scv: Numbers
) -> Numbers:
    """Mean wait in G/G/1, nearly: ρ·S/(1 - ρ) · (c_a² + c_s²)/2.

    Source: Kingman 1961 (Proc. Camb. Phil. Soc. 57), as the heavy-traffic approximation; exact for c_a² = 1. Ignores:
    light traffic, correlation between gaps.
    """
    not_negative(arrival_scv=arrival_scv, service_scv=service_scv)
    return _over_idle(np.asarray(utilisation) * (arrival_scv + service_scv) / 2.0, utilisation, service_s)


def allen_cunneen_mean_wait_s(
    *,
    waiting_share: Numbers,
    utilisation: Numbers,
    service_s: Numbers,
    servers: Numbers,
    arrival_scv: Numbers = 1.0,
    service_scv: Numbers = 1.0,
) -> Numbers:
    """Mean wait in G/G/c, nearly: C·S/(c·(1 - ρ)) · (c_a² + c_s²)/2, with Erlang's chance C to wait; exact for M/M/c.

    Source: Allen 1990, Probability, Statistics and Queueing Theory, section 5.3. Ignores: correlation between gaps.
    """
    share(waiting_share=waiting_share)
    positive_finite(servers=servers)
    not_negative(arrival_scv=arrival_scv, service_scv=service_scv)
    line = np.asarray(waiting_share) / servers * (arrival_scv + service_scv) / 2.0
    return _over_idle(line, utilisation, service_s)


def sakasegawa_mean_wait_s(
    *, utilisation: Numbers, service_s: Numbers, servers: Numbers, arrival_scv: Numbers, service_scv: Numbers
) -> Numbers:
    """Mean wait in G/G/c without Erlang's formula: ρ^(√(2(c+1)) - 1)·S/(c·(1 - ρ)) · (c_a² + c_s²)/2.

    Source: Sakasegawa 1977 (Ann. Inst. Statist. Math. 29). Ignores: correlation between gaps.
    """
    positive_finite(servers=servers)
    not_negative(utilisation=utilisation, arrival_scv=arrival_scv, service_scv=service_scv)
    power = np.asarray(utilisation, dtype=float) ** (np.sqrt(2.0 * (np.asarray(servers) + 1.0)) - 1.0)
    return _over_idle(power / servers * (arrival_scv + service_scv) / 2.0, utilisation, service_s)


def sharing_mean_time_s(*, size_s: Numbers, utilisation: Numbers) -> Numbers:
    """Mean time of a request that alone would take `size_s`, when one server is shared evenly: x/(1 - ρ).

    The same for every distribution of sizes.

    Source: Kleinrock 1976, Queueing Systems II, section 4.4. Ignores: rates that change with the load.
    """
    return _over_idle(1.0, utilisation, size_s)


def decode_balance_step_s(*, fixed_s: Numbers, busy_share: Numbers) -> Numbers:
    """Step of continuous batching at which tokens leave as fast as they are asked for: fixed/(1 - x).

    x is the share of each second that grows with the work: λ·(n_in·c_prefill + n_out·(c_decode + c_kv·context)).

    Source: the step's balance B = λ·n_out·T solved for T. Ignores: token budgets, batch caps, fluctuation.
    """
    return _over_idle(1.0, busy_share, fixed_s)


def mm1_time_quantile_s(*, percentile: float, utilisation: Numbers, service_s: Numbers) -> Numbers:
    """A percentile of the time in an M/M/1 system, first come first served: -ln(1 - p)·S/(1 - ρ).

    Source: the time is exponential, Kleinrock 1975, Queueing Systems I, section 3.2. Ignores: bursts, and any service
    but an exponential one.
    """
    return _over_idle(-np.log1p(-check_percentile(percentile)), utilisation, service_s)


def mm1_replicas_for(
    *, arrivals_per_s: Numbers, service_s: Numbers, percentile: float, limit_s: Numbers
) -> Numbers:
    """The smallest number of M/M/1 replicas, each given its share at random, whose percentile keeps `limit_s`.

    n >= λ / (1/S + ln(1 - p)/limit); infinite when even an idle replica misses it.

    Source: the percentile solved for the rate; random splitting keeps arrivals Poisson. Ignores: routers that
    know the queues, which need fewer.
    """
    not_negative(arrivals_per_s=arrivals_per_s)
    positive_finite(service_s=service_s, limit_s=limit_s)
    room = 1.0 / np.asarray(service_s) + np.log1p(-check_percentile(percentile)) / np.asarray(limit_s)
    needed = np.where(room > 0, arrivals_per_s / np.where(room > 0, room, 1.0), np.inf)
    return ceil_count(np.maximum(needed, 1.0))


def _over_idle(numerator: Numbers, utilisation: Numbers, service_s: Numbers) -> Numbers:
    """Numerator · S / (1 - ρ), infinite from ρ = 1 on."""
    not_negative(utilisation=utilisation)
    positive_finite(service_s=service_s)
    idle = 1.0 - np.asarray(utilisation, dtype=float)
    return scalar(np.where(idle > 0, numerator * service_s / np.where(idle > 0, idle, 1.0), np.inf))
