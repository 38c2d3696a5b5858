"""Whether a system keeps up with its traffic: `stable | near saturation | saturated`, by one rule for everybody."""

from __future__ import annotations

from enum import StrEnum

NEAR_SATURATION = 0.9
"""Utilisation from which a system counts as nearly saturated. Assumed: an M/M/1 queue then waits nine service times on
average, and ten per cent more traffic saturates it."""


class State(StrEnum):
    """Load of a system. A saturated one has no steady latency: its queue grows for as long as the traffic lasts."""

    STABLE = "stable"
    NEAR_SATURATION = "near saturation"
    SATURATED = "saturated"


def state_of(utilisation: float) -> State:
    """The state at a utilisation (work that arrives over work that can be done): saturated from 1 on."""
    if not utilisation < 1.0:
        return State.SATURATED
    return State.NEAR_SATURATION if utilisation >= NEAR_SATURATION else State.STABLE
