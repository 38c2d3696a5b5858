"""What users get: goodput, attainment, and percentiles that a mean hides."""

from __future__ import annotations

from typing import Any

import numpy as np

from calc.arrays import Numbers, not_negative, positive_finite, scalar
from calc.errors import InputError


def goodput_per_s(*, finished_per_s: Numbers, missed_per_s: Numbers) -> Numbers:
    """Requests per second that meet every target: those that finish less those that miss any.

    Source: Zhong et al. 2024 (DistServe, arXiv 2401.09670), section 1. Ignores: by how much a target was missed.
    """
    not_negative(finished_per_s=finished_per_s, missed_per_s=missed_per_s)
    if np.any(np.asarray(missed_per_s) > np.asarray(finished_per_s)):
        raise InputError("missed_per_s", missed_per_s, f"no more can miss than finish ({finished_per_s})")
    return finished_per_s - missed_per_s


def attainment(*, finished_per_s: Numbers, missed_per_s: Numbers) -> Numbers:
    """The share of finished requests that meet every target.

    Source: Zhong et al. 2024 (DistServe, arXiv 2401.09670), section 1. Ignores: requests that never finish.
    """
    positive_finite(finished_per_s=finished_per_s)
    return goodput_per_s(finished_per_s=finished_per_s, missed_per_s=missed_per_s) / finished_per_s


def mean_of_counts(*, values: Any, counts: Any) -> float:
    """The mean of `values`, each seen `counts` times.

    Source: definition. Ignores: nothing.
    """
    values_array, counts_array = _pairs(values, counts)
    return float(np.average(values_array, weights=counts_array))


def percentile_of_counts(*, values: Any, counts: Any, percentile: Numbers) -> Numbers:
    """The smallest value that at least `percentile` per cent of observations do not exceed (nearest rank).

    `values` were each seen `counts` times.

    Source: definition 1 of Hyndman and Fan 1996 (inverse of the empirical distribution). Ignores: interpolation
    between observations, which other tools do.
    """
    values_array, counts_array = _pairs(values, counts)
    wanted = np.asarray(percentile, dtype=float)
    if not np.all((wanted > 0) & (wanted <= 100)):
        raise InputError("percentile", percentile, "it must be above 0 and at most 100")
    order = np.argsort(values_array, kind="stable")
    up_to = np.cumsum(counts_array[order])
    # Whole counts against a share of their sum: a hair of tolerance, so that 7% of 100 is the 7th, not the 8th.
    rank = np.searchsorted(up_to, wanted / 100.0 * up_to[-1] * (1 - 1e-12))
    return scalar(values_array[order][rank])


def _pairs(values: Any, counts: Any) -> tuple[Any, Any]:
    values_array, counts_array = np.atleast_1d(np.asarray(values, dtype=float)), np.atleast_1d(counts)
    not_negative(values=values_array, counts=counts_array)
    if values_array.shape != counts_array.shape or counts_array.sum() <= 0:
        raise InputError("counts", counts, "give one count for each value, and at least one above zero")
    return values_array, counts_array
