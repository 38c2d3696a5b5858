"""Plans ranked: by the search at roofline and expected fidelity, by the textbook's closed forms at its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

from calc.answer import answer
from calc.errors import MissingSpec
from calc.plan.search import UNPUBLISHED, Ranking, rank_key, search, within
from calc.plan.space import Limits, Question, question_of
from calc.result import Answer, Inputs, Offer
from calc.scenario import Fidelity

__all__ = ["Ranking", "rank", "ranked"]


def rank(
    inputs: Inputs, offers: tuple[Offer, ...], *, shortlist: int | None = None, limits: Limits | None = None
) -> Ranking:
    """Answer the scenario, as it stands, on every offer and rank what works; `shortlist`: so many at most."""
    question = replace(question_of(inputs, offers), limits=limits or Limits())
    return ranked(question, top=shortlist or max(1, len(offers)))


def ranked(question: Question, *, top: int = 5) -> Ranking:
    """The best plans of a question. The textbook knows one layout, tensor parallelism, and one format: the scenario's."""
    if question.inputs.scenario.fidelity != Fidelity.TEXTBOOK:
        return search(question, top=top)
    plans: list[Answer] = []
    failed: list[Answer] = []
    why: Counter[str] = Counter()
    offers = question.offers.get(question.inputs.scenario.engine, ())
    for offer in offers:
        scenario = question.inputs.scenario.on(offer.accelerator.id)
        try:
            result = answer(replace(question.inputs, offer=offer, scenario=scenario, catalogue=()))
        except MissingSpec:
            why[UNPUBLISHED] += 1
            continue
        result = within(result, question)
        if result.verdict.fits:
            plans.append(result)
        else:
            failed.append(result)
            why[f"{result.verdict.wall}"] += 1
    best_first = sorted(plans, key=lambda plan: rank_key(question.objective, plan))
    unranked = [plan for plan in best_first if rank_key(question.objective, plan)[0] == inf]
    return Ranking(
        plans=(*[plan for plan in best_first if plan not in unranked][:top], *unranked),
        failed=tuple(failed),
        rejected=tuple(why.most_common()),
        candidates=len(offers),
        answered=len(offers),
    )
