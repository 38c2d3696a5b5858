"""What a plan uses of money, power and devices: which limit it misses, and what it is worth by the objective."""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import NDArray

from calc.plan.space import Objective, Question
from calc.result import Offer
from calc.verdict import Wall

Array = NDArray[np.float64]
Places = NDArray[np.intp]

WALLS = tuple(Wall)
NO_WALL = WALLS.index(Wall.NONE)


def limits_missed(question: Question, offers: tuple[Offer, ...], gpus: Array) -> tuple[Places, Array]:
    """For so many GPUs of each offer the first limit exceeded, as an index into `WALLS`, and by how much relative to it."""
    limits = question.limits
    used = (
        (Wall.AVAILABILITY, gpus, np.array([limits.most_of(offer.accelerator) for offer in offers])),
        (Wall.BUDGET, gpus * prices_of(offers), limits.usd_per_hour),
        (Wall.POWER, gpus * powers_of(offers), limits.power_w),
    )
    walls, excess = np.full(len(offers), NO_WALL), np.zeros(len(offers))
    for wall, amount, limit in used:
        if limit is not None:
            over = (amount > limit) & (walls == NO_WALL)
            walls = np.where(over, WALLS.index(wall), walls)
            with np.errstate(divide="ignore", invalid="ignore"):
                excess = np.where(over, np.nan_to_num(amount / limit, nan=inf, posinf=inf) - 1.0, excess)
    return walls, excess


def prices_of(offers: tuple[Offer, ...]) -> Array:
    """USD per GPU and hour; infinite where no price is known."""
    return np.array([inf if o.usd_per_gpu_hour is None else o.usd_per_gpu_hour for o in offers], dtype=float)


def powers_of(offers: tuple[Offer, ...]) -> Array:
    """Watts of one device at its limit; infinite where none is published."""
    return np.array([o.accelerator.power_w or inf for o in offers], dtype=float)


def objectives_of(objective: Objective, offers: tuple[Offer, ...], gpus: Array, busy_gpus: Array) -> Array:
    """What is to be the least: USD per hour, GPUs, watts, busy GPUs for the same work; infinite where it is not known."""
    if objective is Objective.GPUS:
        return gpus
    if objective is Objective.THROUGHPUT:
        return busy_gpus
    return gpus * (prices_of(offers) if objective is Objective.COST else powers_of(offers))
