"""Prefill and decode on replicas of their own: the prefill pool, and the link over which its caches travel."""

from __future__ import annotations

from dataclasses import dataclass

from calc.errors import InputError
from calc.simulation.link import Link
from calc.simulation.rules import EngineRules
from calc.simulation.step_table import StepTable

MAX_REPLICAS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPool:
    """Replicas that compute prompts and hand them over; rules and step times are the decode pool's if left out."""

    link: Link
    replicas: int = 1
    rules: EngineRules | None = None
    step: StepTable | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.replicas, int) or not 1 <= self.replicas <= MAX_REPLICAS:
            raise InputError(
                "prefill replicas", self.replicas, f"it must be a whole number from 1 to {MAX_REPLICAS:,}"
            )
