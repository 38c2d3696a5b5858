"""Prefill and decode on replicas of their own: the prefill pool, and the link over which its caches travel."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from calc.errors import InputError
from calc.simulation.rules import EngineRules
from calc.simulation.step_table import StepTable

MAX_REPLICAS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a prompt's cache travels over: seconds = latency + tokens x kv_bytes_per_token / bandwidth.

    shared: all transfers queue on one link, first come first served; else each decode replica has one of its own.
    Ignores: a transfer layer by layer while the prompt is still being computed, which hides most of it.
    """

    bandwidth_bytes_per_s: float
    kv_bytes_per_token: float
    latency_s: float = 0.0
    shared: bool = True

    def __post_init__(self) -> None:
        if not (isfinite(self.bandwidth_bytes_per_s) and self.bandwidth_bytes_per_s > 0):
            raise InputError("link bandwidth", self.bandwidth_bytes_per_s, "it must be positive, in bytes/s")
        for name in ("kv_bytes_per_token", "latency_s"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"link {name}", getattr(self, name), "it must be 0 or positive")

    @property
    def token_s(self) -> float:
        """Seconds that the cache of one token takes on the link."""
        return self.kv_bytes_per_token / self.bandwidth_bytes_per_s

    def seconds(self, tokens: float) -> float:
        """Seconds of one transfer on a link that is free."""
        return self.latency_s + tokens * self.token_s


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
