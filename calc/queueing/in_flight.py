"""How many requests are under way at once when arrivals come in bursts: a mean, a peakedness, and a percentile.

With as many slots as the percentile asks for, a request finds one free that often. Slots are then what a plan buys.
"""

from __future__ import annotations

from math import log, sqrt
from statistics import NormalDist

from calc.arrays import not_negative, positive_finite
from calc.errors import InputError


def peakedness(*, arrival_cv: float, time_cv: float) -> float:
    """Variance over mean of the requests under way when none waits: 1 for Poisson arrivals, whatever their times.

    z = 1 + (c_a² - 1) · E[min(T1, T2)]/E[T], with T1 and T2 two times in the system. Log-normal times of coefficient of
    variation c have E[min]/E[T] = 2·Φ(-σ/√2), σ² = ln(1 + c²): one for equal times.

    Source: Whitt 1992, Understanding the efficiency of multi-server service systems (Management Science 38(5)); the
    minimum of two log-normals by direct integration.
    Ignores: gaps that depend on each other (daily cycles, sessions), and light traffic, where the limit is not reached.
    """
    not_negative(arrival_cv=arrival_cv, time_cv=time_cv)
    sigma = sqrt(log(1.0 + time_cv**2))
    shared = 2.0 * NormalDist().cdf(-sigma / sqrt(2.0))
    return 1.0 + (arrival_cv**2 - 1.0) * shared


def in_flight_percentile(*, mean: float, peakedness: float, percentile: float) -> float:
    """Requests under way that are not exceeded `percentile` percent of the time: m + q·√(z·m).

    Source: normal approximation of the infinite-server queue (Whitt 1992).
    Ignores: the tail of small systems; below about ten requests it is a guide.
    """
    positive_finite(mean=mean)
    not_negative(peakedness=peakedness)
    if not 0 < percentile < 100:
        raise InputError("percentile", percentile, "it must lie between 0 and 100")
    return mean + NormalDist().inv_cdf(percentile / 100.0) * sqrt(peakedness * mean)


def tokens_held(*, input_tokens: float, output_tokens: float, output_cv: float) -> float:
    """Cached tokens of a request seen at a random moment: I + O·(1 + c²)/2.

    A long answer is seen more often than a short one, and by its length at that: half the mean for equal answers, the
    whole mean at c = 1.

    Source: inspection paradox of renewal theory (Feller 1971, volume II, XI.4).
    Ignores: that prompts and answers of one request go together, and the time of the prefill.
    """
    positive_finite(input_tokens=input_tokens, output_tokens=output_tokens)
    not_negative(output_cv=output_cv)
    return input_tokens + output_tokens * (1.0 + output_cv**2) / 2.0
