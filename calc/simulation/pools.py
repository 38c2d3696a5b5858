"""The pools of a run: one, or one that prefills and one that decodes."""

from __future__ import annotations

from dataclasses import dataclass

from calc.errors import InputError
from calc.simulation.cluster import Cluster, Router
from calc.simulation.link import Link
from calc.simulation.rules import EngineRules, refuse_unmodelled
from calc.simulation.step_table import StepTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Replicas that are alike: `replicas` of them, the first of which is number `first` of the whole run.

    link: over which prompts leave it (`hands_over`) or come in (`takes_over`).
    """

    rules: EngineRules
    step: StepTable
    replicas: int
    first: int = 0
    link: Link | None = None
    hands_over: bool = False
    takes_over: bool = False


def pools_of(rules: EngineRules, step: StepTable, cluster: Cluster) -> tuple[Pool, ...]:
    """The pools in the order in which a request goes through them."""
    prefill = cluster.prefill
    if cluster.router is Router.PREFIX_AWARE:
        refuse_unmodelled(rules.family, "prefix_aware", str(cluster.router))
    if prefill is None:
        return (Pool(rules=rules, step=step, replicas=cluster.replicas),)
    first = Pool(
        rules=prefill.rules or rules,
        step=prefill.step or step,
        replicas=prefill.replicas,
        link=prefill.link,
        hands_over=True,
    )
    for one in (first.rules, rules):
        refuse_unmodelled(one.family, "prefill_pool", f"{prefill.replicas} replicas")
    if first.rules.block_size != rules.block_size:
        raise InputError(
            "block_size", first.rules.block_size, f"both pools must have the same, {rules.block_size}"
        )
    second = Pool(
        rules=rules,
        step=step,
        replicas=cluster.replicas,
        first=prefill.replicas,
        link=prefill.link,
        takes_over=True,
    )
    return first, second
