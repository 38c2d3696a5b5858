"""Traffic: `Workload` (arrivals, lengths, prefix reuse) and the distributions of lengths."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from calc.errors import InputError

MAX_TOKENS = 100_000_000
MIN_RATE_PER_S = 1e-9  # a request in thirty years; a fleet's price for less is beyond every number
MAX_RATE_PER_S = 1e9
MAX_REUSE_S = 1e7
"""Four months: longer than any cache keeps anything."""


class LengthShape(StrEnum):
    """How token counts vary from request to request."""

    FIXED = "fixed"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Token counts of prompts or of outputs: a mean and a shape; `cv` is the standard deviation over the mean."""

    mean_tokens: float
    shape: LengthShape = LengthShape.FIXED
    cv: float = 0.0

    def __post_init__(self) -> None:
        if not isfinite(self.mean_tokens) or not 1 <= self.mean_tokens <= MAX_TOKENS:
            raise InputError("tokens", self.mean_tokens, f"it must be from 1 to {MAX_TOKENS:,}")
        if not isfinite(self.cv) or not 0 <= self.cv <= 100:
            raise InputError("cv", self.cv, "it must be from 0 to 100")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests that arrive at `rate_per_s` (open), or `concurrency` users who each wait for their answer (closed).

    Exactly one of the two is given. `arrival_cv` is the coefficient of variation of the gaps between arrivals
    (1: Poisson). `prefix_share` is the share of prompt tokens that repeat earlier text: what a prefix cache can hold.
    `reuse_after_s`: mean time until a text comes back; None: all share one text, which is always in the cache.
    """

    input: Lengths
    output: Lengths
    rate_per_s: float | None = None
    concurrency: int | None = None
    arrival_cv: float = 1.0
    prefix_share: float = 0.0
    peak_factor: float = 1.0
    reuse_after_s: float | None = None

    def __post_init__(self) -> None:
        if (self.rate_per_s is None) == (self.concurrency is None):
            raise InputError(
                "traffic", (self.rate_per_s, self.concurrency), "give either requests/s or concurrent users"
            )
        rate = self.rate_per_s
        if rate is not None and rate != 0 and not MIN_RATE_PER_S <= rate <= MAX_RATE_PER_S:
            raise InputError("rate", rate, "it must be 0, or from 1e-9 to 1e9 requests/s")
        if self.concurrency is not None and not 1 <= self.concurrency <= MAX_TOKENS:
            raise InputError("concurrency", self.concurrency, f"it must be from 1 to {MAX_TOKENS:,} users")
        if not 0 <= self.prefix_share < 1:
            raise InputError("prefix_share", self.prefix_share, "it must be from 0 to below 1")
        if not 0 <= self.arrival_cv <= 100:
            raise InputError("arrival_cv", self.arrival_cv, "it must be from 0 to 100")
        if self.reuse_after_s is not None and not 0 < self.reuse_after_s <= MAX_REUSE_S:
            raise InputError(
                "reuse_after_s", self.reuse_after_s, f"it must be above 0, at most {MAX_REUSE_S:g} s"
            )
        if not 1 <= self.peak_factor <= 1000:
            raise InputError("peak_factor", self.peak_factor, "it must be from 1 to 1000")
