"""`Link`: what cached text travels over, between pools or between a card and the memory behind it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from calc.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What cached text travels over: seconds = latency + tokens x kv_bytes_per_token / bandwidth.

    shared: all transfers queue on one link, first come first served; else each decode replica has one of its own.
    Ignores: a transfer layer by layer while the prompt is still being computed, which hides most of it. A way up from a
    tier is its replica's own, whatever `shared` says.
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


MAX_TIER_BLOCKS = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTier:
    """Memory behind the card that keeps the text of reused blocks: how many blocks, and the way back up."""

    num_blocks: int
    link: Link

    def __post_init__(self) -> None:
        if not isinstance(self.num_blocks, int) or not 1 <= self.num_blocks <= MAX_TIER_BLOCKS:
            raise InputError(
                "tier blocks", self.num_blocks, f"it must be a whole number from 1 to {MAX_TIER_BLOCKS:,}"
            )
