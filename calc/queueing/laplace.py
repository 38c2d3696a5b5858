"""A function from its Laplace transform: the Euler algorithm of Abate and Whitt."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import comb, exp, pi
from typing import Any

import numpy as np

DISCRETISATION = (
    20.0  # the error is about e^-20 of the function's size, and round-off about e^10 of the last bit
)
PLAIN_TERMS = 40
AVERAGED_TERMS = 14


@cache
def _weights() -> tuple[Any, Any]:
    """(k, weight of the k-th node): alternating signs, with the last terms averaged binomially."""
    k = np.arange(PLAIN_TERMS + AVERAGED_TERMS + 1)
    tails = [
        sum(comb(AVERAGED_TERMS, j) for j in range(i, AVERAGED_TERMS + 1)) for i in range(AVERAGED_TERMS + 1)
    ]
    weight = np.ones(k.size)
    weight[PLAIN_TERMS:] = np.array(tails) / 2.0**AVERAGED_TERMS
    weight *= (-1.0) ** k
    weight[0] = 0.5
    return k, weight


def inverted(transform: Callable[[Any], Any], t: float) -> float:
    """The value at t > 0 of a smooth, bounded real function with this Laplace transform (takes an array of complex s).

    Source: Abate and Whitt 1995 (ORSA Journal on Computing 7(1)), algorithm EULER. Ignores: jumps; at one it returns
    the middle, and near one it is off by about a thousandth of the jump.
    """
    k, weight = _weights()
    nodes = DISCRETISATION / (2.0 * t) + 1j * pi * k / t
    total = float(np.dot(weight, np.real(transform(nodes))))
    return exp(DISCRETISATION / 2.0) / t * total
