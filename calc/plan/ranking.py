"""Plans ranked: by the search at roofline and expected fidelity, by the textbook's closed forms at its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

from calc import format as fmt
from calc.answer import answer
from calc.errors import MissingSpec
from calc.plan.search import UNPUBLISHED, Ranking, rank_key, search, within
from calc.plan.space import Limits, Question, question_of, searches_layouts
from calc.result import Answer, Inputs, Offer
from calc.scenario import Fidelity

__all__ = ["Ranking", "on_its_own_accelerator", "other_layout_in_words", "rank", "ranked"]


def rank(
    inputs: Inputs, offers: tuple[Offer, ...], *, shortlist: int | None = None, limits: Limits | None = None
) -> Ranking:
    """Answer the scenario, as it stands, on every offer and rank what works; `shortlist`: so many at most."""
    question = replace(question_of(inputs, offers), limits=limits or Limits())
    return ranked(question, top=shortlist or max(1, len(offers)))


def on_its_own_accelerator(result: Answer) -> Answer | None:
    """The best plan of any layout on the answer's accelerator: what `ridgebeam plan --gpu` says of the same question.

    The answer itself keeps to tensor parallelism inside a host (pipelines of hosts where one is too small), which is quick
    enough to follow a slider. None where the layout was chosen, at textbook fidelity, and where no better one is found.
    """
    scenario = result.inputs.scenario
    if not searches_layouts(scenario) or scenario.fidelity == Fidelity.TEXTBOOK:
        return None
    question = question_of(result.inputs, (result.inputs.offer,))
    best = next(iter(ranked(question, top=1).plans), None)
    if best is None or (best.layout == result.layout and best.gpus == result.gpus):
        return None
    if not result.verdict.fits:
        return best
    better = rank_key(question.objective, best) < rank_key(question.objective, result)
    return best if better else None


def other_layout_in_words(result: Answer, other: Answer) -> str:
    """What the best plan of any layout has over the answer, which keeps to a simple one."""
    name = result.inputs.offer.accelerator.name
    found = f"{fmt.plural(other.gpus, 'GPU')} as {other.layout.label}"
    if not result.verdict.fits:
        return f"On {name} another layout serves this: {found}."
    than = f"in place of {fmt.count(result.gpus)} as {result.layout.label}"
    felt = (
        f"TTFT {fmt.optional(other.ttft_s, fmt.seconds)} instead of {fmt.optional(result.ttft_s, fmt.seconds)}, "
        f"TPOT {fmt.optional(other.tpot_s, fmt.seconds, 'none')} instead of "
        f"{fmt.optional(result.tpot_s, fmt.seconds, 'none')}"
    )
    return f"On {name} itself the search finds {found} {than}: {felt}."


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
