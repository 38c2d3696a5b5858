"""Goodput: what users get of what is served."""

from __future__ import annotations

import numpy as np

from calc.arrays import Numbers, not_negative
from calc.errors import InputError


def goodput_per_s(*, finished_per_s: Numbers, missed_per_s: Numbers) -> Numbers:
    """Requests per second that meet every target: those that finish less those that miss any.

    Source: Zhong et al. 2024 (DistServe, arXiv 2401.09670), section 1. Ignores: by how much a target was missed.
    """
    not_negative(finished_per_s=finished_per_s, missed_per_s=missed_per_s)
    if np.any(np.asarray(missed_per_s) > np.asarray(finished_per_s)):
        raise InputError("missed_per_s", missed_per_s, f"no more can miss than finish ({finished_per_s})")
    return finished_per_s - missed_per_s
