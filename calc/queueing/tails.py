"""Shares of requests that stay longer than a time, in closed form: the equations behind the percentiles of three queues."""

from __future__ import annotations

from functools import lru_cache
from math import exp, sqrt
from typing import Any

import numpy as np

from calc.arrays import not_negative, positive_finite, share_below_one
from calc.queueing.many_servers import still_there
from calc.queueing.single_server import MD1

NODES = 400
"""Points of the quadrature over an angle: the integrand is smooth, so that 400 give more digits than a reader sees."""
LARGEST_EXPONENT = 700.0  # beyond it e^x is no double


def line_clears_per_s(*, servers: float, service_s: float, arrivals_per_s: float) -> float:
    """Requests per second by which a line of waiting requests shrinks: completions of all servers less arrivals.

    Source: Kleinrock 1975, Queueing Systems I, section 3.5. Ignores: bursts, service that is not exponential.
    """
    positive_finite(servers=servers, service_s=service_s)
    not_negative(arrivals_per_s=arrivals_per_s)
    return servers / service_s - arrivals_per_s


def mmc_time_tail(*, t_s: float, service_s: float, waiting_share: float, line_clears_per_s: float) -> float:
    """Share of requests that stay longer than t in M/M/c, first come first served: those still served, and those that waited.

    Source: Kleinrock 1975, Queueing Systems I, section 3.5: a wait with an exponential tail, then an exponential service.
    Ignores: bursts, service that is not exponential.
    """
    not_negative(t_s=t_s, waiting_share=waiting_share)
    positive_finite(service_s=service_s, line_clears_per_s=line_clears_per_s)
    return still_there(t_s, rate=1.0 / service_s, waiting_share=waiting_share, spare=line_clears_per_s)


def md1_time_tail(*, t_s: float, utilisation: float, service_s: float) -> float:
    """Share of requests that stay longer than t in M/D/1, first come first served.

    Source: Erlang 1909 (Nyt Tidsskrift for Matematik B 20), the wait of telephone calls of one length; summed from positive
    terms (Franx 2001). Ignores: bursts, work that differs.
    """
    share_below_one(utilisation=utilisation)
    positive_finite(service_s=service_s)
    return MD1(arrivals_per_s=utilisation / service_s, service_s=service_s).time_tail(t_s)


def sharing_time_tail(*, t_s: float, utilisation: float, service_s: float) -> float:
    """Share of requests that stay longer than t where one server is shared evenly and sizes are exponential (M/M/1-PS).

    Source: Flatto 1997 (Annals of Applied Probability 7) for service in random order, which Borst, Boxma, Morrison and
    Núñez-Queija 2003 (Operations Research Letters 31) proved to be the same law. Ignores: bursts, other sizes, rates that
    change with the load.
    """
    share_below_one(utilisation=utilisation)
    not_negative(t_s=t_s)
    positive_finite(service_s=service_s)
    if utilisation == 0.0:
        return exp(-t_s / service_s)
    fall, weight = _shared_spectrum(utilisation)
    return float(weight @ np.exp(-fall * t_s / service_s))


@lru_cache(maxsize=64)
def _shared_spectrum(utilisation: float) -> tuple[Any, Any]:
    """(rates at which the tail falls, per service time; the share of each), by Gauss and Legendre over the angle."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    angle = 0.5 * np.pi * (points + 1.0)
    root = sqrt(utilisation)
    fall = 1.0 + utilisation - 2.0 * root * np.cos(angle)
    turned = np.arctan2(np.sin(angle), np.cos(angle) - root)
    cot = np.cos(angle) / np.sin(angle)
    exponent = (2.0 * turned - angle) * cot - np.logaddexp(0.0, np.pi * cot)
    density = np.exp(np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT)) * np.sin(angle) / fall**2
    return fall, 2.0 * (1.0 - utilisation) * density * weights * 0.5 * np.pi
