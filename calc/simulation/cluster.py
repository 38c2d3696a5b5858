"""`Cluster`: replicas of an engine and the router in front of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from calc.errors import InputError
from calc.simulation.disaggregation import MAX_REPLICAS, PrefillPool
from calc.simulation.kernels import layout


class Router(StrEnum):
    """How requests are given to replicas."""

    ROUND_ROBIN = "round-robin"
    RANDOM = "random"
    LEAST_OUTSTANDING = "least-outstanding"
    POWER_OF_TWO = "power-of-two"
    PREFIX_AWARE = "prefix-aware"


ROUTER_CODES = {
    Router.ROUND_ROBIN: layout.ROUND_ROBIN,
    Router.RANDOM: layout.RANDOM,
    Router.LEAST_OUTSTANDING: layout.LEAST_OUTSTANDING,
    Router.POWER_OF_TWO: layout.POWER_OF_TWO,
    Router.PREFIX_AWARE: layout.PREFIX_AWARE,
}

MOST_SERVER_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """How many replicas of the engine run, and how requests reach them.

    prefill: a pool of its own for prompts; `replicas` are then those that decode, and each pool is routed by `router`.
    server_s: seconds of a request in the server before a scheduler sees it; no engine is busy with them.
    """

    replicas: int = 1
    router: Router = Router.ROUND_ROBIN
    seed: int = 0
    prefill: PrefillPool | None = None
    server_s: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.replicas, int) or not 1 <= self.replicas <= MAX_REPLICAS:
            raise InputError(
                "replicas", self.replicas, f"it must be a whole number from 1 to {MAX_REPLICAS:,}"
            )
        if not 0.0 <= self.server_s <= MOST_SERVER_S:
            raise InputError("server_s", self.server_s, f"it must be from 0 to {MOST_SERVER_S:g} seconds")
        if self.router not in ROUTER_CODES:
            raise InputError("router", str(self.router), f"choose one of {', '.join(Router)}")
