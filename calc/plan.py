"""Plans: the answer for many accelerators and layouts, ranked by cost, with the reasons of those left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import inf

from calc.answer import Answer, Inputs, Offer, answer
from calc.errors import MissingSpec
from calc.scenario import Fidelity

DEARER = "dearer at textbook fidelity than those shown"
UNPUBLISHED = "a number that the question needs is not published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Plans that work, cheapest first (unpriced ones after every priced one), and why the others do not."""

    plans: tuple[Answer, ...]
    failed: tuple[Answer, ...]
    rejected: tuple[tuple[str, int], ...]


def rank(inputs: Inputs, offers: tuple[Offer, ...], *, shortlist: int | None = None) -> Ranking:
    """Answer the scenario on every offer and rank what works.

    An accelerator without a needed number is rejected as such; nothing is ranked by a price that is not known.
    `shortlist`: at a fidelity slower than the textbook's, only that many offers are answered at it: those that the
    textbook ranks first.
    """
    if shortlist is None or inputs.scenario.fidelity == Fidelity.TEXTBOOK:
        return _ranked(inputs, offers)
    quick = replace(inputs, scenario=replace(inputs.scenario, fidelity=Fidelity.TEXTBOOK))
    screened = _ranked(quick, offers)
    kept = {plan.inputs.offer.accelerator.id for plan in screened.plans[:shortlist]}
    exact = _ranked(inputs, tuple(offer for offer in offers if offer.accelerator.id in kept))
    passed_over = len(screened.plans) - len(kept)
    why = Counter(dict(exact.rejected)) + Counter(dict(screened.rejected))
    if passed_over:
        why[DEARER] = passed_over
    return replace(exact, failed=(*exact.failed, *screened.failed), rejected=tuple(why.most_common()))


def _ranked(inputs: Inputs, offers: tuple[Offer, ...]) -> Ranking:
    plans: list[Answer] = []
    failed: list[Answer] = []
    why: Counter[str] = Counter()
    for offer in offers:
        scenario = replace(inputs.scenario, gpu=offer.accelerator.id, gpu_json="")
        try:
            result = answer(replace(inputs, offer=offer, scenario=scenario, catalogue=()))
        except MissingSpec:
            why[UNPUBLISHED] += 1
            continue
        if result.verdict.fits:
            plans.append(result)
        else:
            failed.append(result)
            why[f"{result.verdict.wall}"] += 1
    return Ranking(
        plans=tuple(sorted(plans, key=cost_key)), failed=tuple(failed), rejected=tuple(why.most_common())
    )


def cost_key(result: Answer) -> tuple[float, int, str]:
    """Cheapest first, then fewest GPUs; what has no price comes after everything that has one."""
    per_hour = result.cost.usd_per_hour
    return (inf if per_hour is None else per_hour, result.gpus, result.inputs.offer.accelerator.id)
