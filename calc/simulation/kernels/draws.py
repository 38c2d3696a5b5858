"""Random numbers by counter: the same seed, request and counter give the same number, whatever happened before.

Philox 2x32 with ten rounds, in products of 16 by 32 bits, so that signed 64-bit machine integers and Python's own
give the same.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; constants and test vectors of Random123.
"""

from __future__ import annotations

from calc.simulation.kernels.layout import inlined

MULTIPLIER = 0xD256D193
KEY_STEP = 0x9E3779B9  # the golden ratio's bits
WORD = 0xFFFFFFFF
ROUNDS = 10

# What a number is for: different purposes never share one
ROUTE_ONE, ROUTE_TWO, ACCEPT, BEAM_DROPPED, BEAM_PARENT = range(5)
PURPOSES = 8


def philox(counter: int, stream: int, key: int) -> tuple[int, int]:
    """Two words of 32 random bits."""
    left, right = counter & WORD, stream & WORD
    key &= WORD
    for _ in range(ROUNDS):
        low = (left & 0xFFFF) * MULTIPLIER
        high = (left >> 16) * MULTIPLIER
        upper = (high + (low >> 16)) >> 16
        lower = (((high & 0xFFFF) << 16) + low) & WORD
        left = upper ^ key ^ right
        right = lower
        key = (key + KEY_STEP) & WORD
    return left, right


@inlined
def uniform(seed: int, purpose: int, request: int, counter: int) -> float:
    """A number from 0 to below 1."""
    one, other = philox(counter, request, seed * PURPOSES + purpose)
    return ((one >> 5) * 67108864.0 + (other >> 6)) / 9007199254740992.0


@inlined
def pick(seed: int, purpose: int, request: int, count: int) -> int:
    """One of `count`, drawn once for a request."""
    return int(uniform(seed, purpose, request, 0) * count)
