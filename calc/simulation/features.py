"""`Features`: what is added to an engine's own scheduler, in one record that the command line and the pages fill alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite

from calc.errors import InputError
from calc.simulation.cluster import Cluster, Router
from calc.simulation.disaggregation import PrefillPool
from calc.simulation.link import KvTier, Link
from calc.simulation.rules import BeamSearch, EngineRules, Speculation
from calc.simulation.step_table import StepTable
from calc.units import GB, GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Nothing by default. `kv_bytes_per_token` is what links and tiers count with.

    prefill_replicas: a pool of their own for prompts, with `link_bytes_per_s` and `link_latency_s` to the decode pool.
    drafts, acceptance, draft_cost: speculation whose draft step takes that share of the target's. prefix_ttl_s: when
    unused text expires. tiers, swap: (bytes, bytes/s, seconds of latency) of host memory and SSD, and of the swap space.
    beam_dropped: the samples are beams, dropped with that chance a token; None: they are independent.
    """

    router: Router = Router.ROUND_ROBIN
    kv_bytes_per_token: float = 0.0
    prefill_replicas: int = 0
    link_bytes_per_s: float = 0.0
    link_latency_s: float = 0.0
    drafts: int = 0
    acceptance: float = 0.0
    draft_cost: float = 0.0
    prefix_ttl_s: float | None = None
    tiers: tuple[tuple[float, float, float], ...] = ()
    swap: tuple[float, float, float] | None = None
    beam_dropped: float | None = None

    def __post_init__(self) -> None:
        if self.prefill_replicas < 0:
            raise InputError("prefill replicas", self.prefill_replicas, "it must be 0 or positive")
        if not (isfinite(self.draft_cost) and 0 <= self.draft_cost <= 10):
            raise InputError("draft cost", self.draft_cost, "a share of the target's step, from 0 to 10")
        moves = self.prefill_replicas > 0 or self.tiers or self.swap is not None
        if moves and not self.kv_bytes_per_token > 0:
            raise InputError(
                "kv bytes per token", self.kv_bytes_per_token, "links and tiers need it", next_step="Give it."
            )

    def rules(self, rules: EngineRules, step: StepTable) -> EngineRules:
        """An engine's rules with these features; its token budget rises to what the drafts need.

        `step`: the target's time of a pass without drafts, of which a draft step takes its share.
        """
        more: dict[str, object] = {}
        if self.drafts:
            draft_step = step.scaled(self.draft_cost) if self.draft_cost else None
            more["speculation"] = Speculation(
                drafts=self.drafts, acceptance=self.acceptance, draft_step=draft_step
            )
            if rules.token_budget is not None:
                more["token_budget"] = max(rules.token_budget, rules.places * (1 + self.drafts))
        if self.prefix_ttl_s is not None:
            more["prefix_ttl_s"] = self.prefix_ttl_s
        if self.tiers:
            more["tiers"] = tuple(self._tier(rules, *one) for one in self.tiers)
        if self.beam_dropped is not None:
            more["beam_search"] = BeamSearch(dropped=self.beam_dropped)
        if self.swap is not None:
            more["swap"] = self._tier(rules, *self.swap)
        return replace(rules, **more)  # type: ignore[arg-type]

    def cluster(self, replicas: int, seed: int, *, server_s: float = 0.0) -> Cluster:
        """Replicas behind the router, with the prefill pool if there is one; `server_s` as for `Cluster`."""
        prefill = None
        if self.prefill_replicas:
            link = Link(
                bandwidth_bytes_per_s=self.link_bytes_per_s,
                kv_bytes_per_token=self.kv_bytes_per_token,
                latency_s=self.link_latency_s,
            )
            prefill = PrefillPool(replicas=self.prefill_replicas, link=link)
        return Cluster(replicas=replicas, router=self.router, seed=seed, prefill=prefill, server_s=server_s)

    def _tier(self, rules: EngineRules, size_bytes: float, bytes_per_s: float, latency_s: float) -> KvTier:
        block = rules.block_size * self.kv_bytes_per_token
        if not (isfinite(size_bytes) and size_bytes >= block):
            raise InputError("tier", size_bytes, f"it must hold a block of {block:,.0f} bytes at least")
        link = Link(
            bandwidth_bytes_per_s=bytes_per_s,
            kv_bytes_per_token=self.kv_bytes_per_token,
            latency_s=latency_s,
        )
        return KvTier(num_blocks=int(size_bytes // block), link=link)


def tier_from(field: str, text: str) -> tuple[float, float, float]:
    """(bytes, bytes/s, latency in s) from "GIB,GB_PER_S" or "GIB,GB_PER_S,LATENCY_S"."""
    size, speed, latency_s = _numbers(field, text, "GIB,GB_PER_S[,LATENCY_S]", least=2, most=3)
    return size * GIB, speed * GB, latency_s


def link_from(field: str, text: str) -> tuple[float, float]:
    """(bytes/s, latency in s) from "GB_PER_S" or "GB_PER_S,LATENCY_S"."""
    speed, latency_s, _ = _numbers(field, text, "GB_PER_S[,LATENCY_S]", least=1, most=2)
    return speed * GB, latency_s


def _numbers(field: str, text: str, form: str, *, least: int, most: int) -> tuple[float, float, float]:
    parts = text.split(",")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if not least <= len(values) <= most or not all(isfinite(one) and one >= 0 for one in values):
        raise InputError(field, text, f"give {form}")
    one, two, three = (*values, 0.0, 0.0)[:3]
    return one, two, three
