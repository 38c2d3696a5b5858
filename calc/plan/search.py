"""The search: bounds first, then the full model on the configurations that could still be the best, best bound first.

For each accelerator the best configuration is found (branch and bound: what cannot beat the best answer so far is not
asked), and accelerators are taken in the order of what they could cost at best, until none of the rest can enter the list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from calc.cost import usd_per_hour, usd_per_million_tokens
from calc.errors import InputError, MissingSpec
from calc.plan.limits import WALLS, limits_missed, objectives_of
from calc.plan.screen import UNPUBLISHED, Configuration, Screened, screen
from calc.plan.space import Limits, Objective, Question
from calc.result import Answer, Cost, Inputs
from calc.sized import answer_on, length_verdict
from calc.verdict import Verdict, Wall

__all__ = ["UNPUBLISHED", "Ranking", "rank_key", "search", "with_replicas", "within"]

DEARER = "cannot beat the plans shown"
WORSE = "worse than another layout or format of the same accelerator"
NO_PRICE = "no price known"
NEAREST_SHOWN = 3
NEAREST_TRIED = 32  # full answers on one accelerator, at most, in looking for what comes nearest to a limit
MOST_ANSWERS = 600  # full answers that one search may ask for; more only where bounds are far from the truth
UNPRICED_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Plans that work, best first (unpriced ones after every priced one), why the others do not, and the nearest failures.

    `rejected`: configurations by reason, or accelerators where a search asked only about those. `candidates`: what was
    screened; `answered`: how many of them the full model was asked about. `proven`: whether nothing that was left out
    could have been better.
    """

    plans: tuple[Answer, ...]
    failed: tuple[Answer, ...]
    rejected: tuple[tuple[str, int], ...]
    candidates: int = 0
    answered: int = 0
    proven: bool = True


def search(question: Question, *, top: int = 5) -> Ranking:
    """The `top` accelerators by the question's objective, each in its best configuration; see `Ranking`."""
    if top < 1:
        raise InputError("top", top, "at least one plan is shown")
    if not length_verdict(question.inputs).fits:  # no accelerator and no format lengthens a model's context
        return _too_long(question)
    screened = screen(question)
    asked = _Asked(question, screened)
    kinds = _by_accelerator(screened)
    objective = screened.bounds.objective
    ranked = sorted((rows for rows in kinds if objective[rows[0]] < inf), key=lambda rows: objective[rows[0]])
    plans = [_with_pools(asked, plan) for plan in _best_of_each(asked, ranked, top=top)]
    plans += _unranked(asked, [rows for rows in kinds if objective[rows[0]] == inf])
    return Ranking(
        plans=tuple(sorted(plans, key=lambda plan: rank_key(question.objective, plan))),
        failed=() if plans else _nearest(asked),
        rejected=_reasons(asked, plans),
        candidates=screened.candidates,
        answered=asked.count,
        proven=asked.count < MOST_ANSWERS,
    )


def _too_long(question: Question) -> Ranking:
    """Every accelerator is refused by the model's context; one says so in full."""
    offers = [offer for offers in question.offers.values() for offer in offers]
    failed = []
    for offer in offers:
        scenario = replace(question.inputs.scenario, gpu=offer.accelerator.id)
        asked = replace(question.inputs, offer=offer, scenario=scenario, catalogue=())
        try:
            failed.append(answer_on(asked, scenario.layout))
        except (InputError, MissingSpec):
            continue
        if failed[-1].verdict.wall is Wall.CONTEXT:
            break
        failed.pop()
    return Ranking(plans=(), failed=tuple(failed), rejected=((f"{Wall.CONTEXT}", len(offers)),))


def rank_key(objective: Objective, plan: Answer) -> tuple[float, int, int, float, str]:
    """Best first, then fewest GPUs, then the shortest pipeline (what costs the same need not be spread), then most to spare."""
    busy = plan.fleet.utilization if plan.fleet else inf
    return (_reached(objective, plan), plan.gpus, plan.layout.pp, busy, plan.inputs.offer.accelerator.id)


def _reached(objective: Objective, plan: Answer) -> float:
    fleet = plan.fleet
    busy = fleet.utilization * fleet.replicas * plan.layout.gpus_per_replica if fleet else inf
    if fleet and plan.inputs.scenario.workload.rate_per_s is None:
        busy = plan.gpus / fleet.rate_per_s  # users who wait: GPU-seconds of a request
    reached = objectives_of(objective, (plan.inputs.offer,), np.array([float(plan.gpus)]), np.array([busy]))
    return float(reached[0])


class _Asked:
    """The full model's answers of one search, counted, with the reasons of those that do not work."""

    def __init__(self, question: Question, screened: Screened) -> None:
        self.question = question
        self.screened = screened
        self.count = 0
        self.walls: Counter[str] = Counter()
        self.failed: list[Answer] = []

    def about(self, index: int) -> Answer | None:
        """The answer of one configuration with the replicas that the limits ask for; None where it does not work."""
        self.count += 1
        try:
            answer = within(
                configured(self.question.inputs, self.screened.configuration(index)), self.question
            )
        except MissingSpec:
            self.walls[UNPUBLISHED] += 1
            return None
        except InputError:
            self.walls[f"{Wall.LAYOUT}"] += 1
            return None
        if answer.verdict.fits:
            return answer
        self.walls[f"{answer.verdict.wall}"] += 1
        self.failed.append(answer)
        return None


def configured(inputs: Inputs, configuration: Configuration) -> Answer:
    """The full answer of a configuration, its scenario set so that a page can apply it."""
    scenario = configuration.scenario(inputs.scenario)
    asked = replace(inputs, offer=configuration.offer, scenario=scenario, catalogue=())
    return answer_on(asked, configuration.layout)


def within(answer: Answer, question: Question) -> Answer:
    """The answer with the replicas that spare units need, refused where a limit is exceeded."""
    if not answer.verdict.fits or answer.fleet is None:
        return answer
    offer, fleet = answer.inputs.offer, answer.fleet
    work, needed = np.array([fleet.utilization * fleet.replicas]), np.array([float(fleet.replicas)])
    limits, kinds = question.limits, (offer.accelerator,)
    bought = limits.replicas_to_buy(work, needed, answer.layout, kinds)
    nodes = int(limits.nodes_of(bought, answer.layout, kinds)[0]) if limits.whole_nodes else None
    grown = with_replicas(answer, int(bought[0]), nodes=nodes)
    walls, excess = limits_missed(question, (offer,), np.array([float(grown.gpus)]))
    wall = WALLS[walls[0]]
    if wall is Wall.NONE:
        return grown
    reason = _limit_words(grown, wall, limits)
    return replace(grown, verdict=Verdict(fits=False, wall=wall, short_by=float(excess[0]), reason=reason))


def with_replicas(answer: Answer, replicas: int, *, nodes: int | None = None) -> Answer:
    """The same plan on another number of replicas: utilisation and cost follow, times stay those of the planned load.

    `nodes`: whole hosts that are paid for; None: the replicas' own devices.
    """
    if answer.fleet is None or (replicas == answer.fleet.replicas and nodes == answer.nodes):
        return answer
    work = answer.fleet.utilization * answer.fleet.replicas
    fleet = replace(answer.fleet, replicas=replicas, utilization=work / replicas)
    grown = replace(answer, fleet=fleet, nodes=nodes)
    price = answer.inputs.offer.usd_per_gpu_hour
    cost = answer.cost
    if price is not None:
        per_hour = float(usd_per_hour(gpus=grown.gpus, usd_per_gpu_hour=price))
        tokens_per_s = fleet.rate_per_s * answer.inputs.scenario.output_tokens
        per_million = None
        if tokens_per_s > 0:
            per_million = float(usd_per_million_tokens(usd_per_hour=per_hour, tokens_per_s=tokens_per_s))
        cost = Cost(usd_per_hour=per_hour, usd_per_million_output=per_million, note=cost.note)
    return replace(grown, cost=cost)


def _limit_words(answer: Answer, wall: Wall, limits: Limits) -> str:
    accelerator = answer.inputs.offer.accelerator
    one = answer.gpus == 1
    needs = f"{answer.gpus:,} x {accelerator.name} {'is' if one else 'are'} needed"
    has = "has" if one else "have"
    if wall is Wall.BUDGET:
        cost = answer.cost.usd_per_hour
        priced = (
            f"{has} no known price" if cost is None else f"cost{'s' if one else ''} ${cost:,.2f} per hour"
        )
        return f"{needs}, which {priced}; the budget is ${limits.usd_per_hour:,.2f}"
    if wall is Wall.POWER:
        power = accelerator.power_w
        watts = answer.gpus * (power or 0.0)
        drawn = (
            f"{has} no published power"
            if power is None
            else f"draw{'s' if one else ''} {watts / 1e3:,.1f} kW"
        )
        return f"{needs}, which {drawn}; the limit is {(limits.power_w or 0.0) / 1e3:,.1f} kW"
    return f"{needs}, {limits.most_of(accelerator):g} can be had"


def _by_accelerator(screened: Screened) -> list[list[int]]:
    """Configurations that may work, by accelerator, each list with the best bound first.

    Of equal bounds the shortest pipeline comes first, then the one with the least work for its GPUs, then the smaller replica.
    """
    bounds = screened.bounds
    per_replica = bounds.gpus / np.maximum(bounds.replicas, 1.0)
    stages = np.array([group.layout.pp for group in screened.groups])[screened.group]
    order = np.lexsort((per_replica, bounds.busy * per_replica, stages, bounds.gpus, bounds.objective))
    kinds: dict[str, list[int]] = {}
    for index in order[screened.possible[order]].tolist():
        kinds.setdefault(screened.accelerators[index], []).append(index)
    return list(kinds.values())


def _best_of_each(asked: _Asked, ranked: Iterable[list[int]], *, top: int) -> list[Answer]:
    """The best answers of the best accelerators: bounds decide what is still worth asking."""
    objective, bound = asked.question.objective, asked.screened.bounds.objective
    best: list[Answer] = []
    for rows in ranked:
        worst = _reached(objective, best[top - 1]) if len(best) >= top else inf
        if bound[rows[0]] > worst or asked.count >= MOST_ANSWERS:
            break
        found = _best_of(asked, rows, below=worst)
        if found is not None:
            best = sorted([*best, found], key=lambda plan: rank_key(objective, plan))
    return best[:top]


def _best_of(asked: _Asked, rows: list[int], *, below: float) -> Answer | None:
    """The best configuration of one accelerator, if it is no worse than `below`."""
    objective, bound = asked.question.objective, asked.screened.bounds.objective
    best: Answer | None = None
    for index in rows:
        if bound[index] > below or (best is not None and bound[index] >= _reached(objective, best)):
            break
        answer = asked.about(index)
        if answer is not None and (best is None or rank_key(objective, answer) < rank_key(objective, best)):
            best = answer
    return best


def _unranked(asked: _Asked, kinds: list[list[int]]) -> list[Answer]:
    """Accelerators without the number that ranks: those that would need the fewest GPUs, as a list to look at."""
    found: list[Answer] = []
    gpus = asked.screened.bounds.gpus
    for rows in sorted(kinds, key=lambda rows: gpus[rows].min()):
        if len(found) == UNPRICED_SHOWN:
            break
        answers = map(asked.about, sorted(rows, key=lambda index: gpus[index])[:NEAREST_SHOWN])
        first = next((answer for answer in answers if answer is not None), None)
        if first is not None:
            found.append(first)
    return found


def _with_pools(asked: _Asked, plan: Answer) -> Answer:
    """The plan, or the same configuration with pools of its own for prompts where that is better."""
    question, scenario = asked.question, plan.inputs.scenario
    if not question.pools or scenario.workload.rate_per_s is None or scenario.reuse_after_s is not None:
        return plan
    asked.count += 1
    apart = replace(plan.inputs, scenario=replace(scenario, disaggregated=True))
    other = within(answer_on(apart, plan.layout), question)
    better = other.verdict.fits and rank_key(question.objective, other) < rank_key(question.objective, plan)
    return other if better else plan


LIMITS = (Wall.BUDGET, Wall.POWER, Wall.AVAILABILITY)
"""Walls of the question, which no change of the plan alone is known to get over."""
LATE = (*LIMITS, Wall.TPOT, Wall.TTFT, Wall.E2E)


def _nearest(asked: _Asked) -> tuple[Answer, ...]:
    """The configurations that came nearest to working, asked in full: those that limits or latency stop before memory's.

    A limit is missed by more than its bound says, so what a kind of accelerator would really take is the least of those
    whose bounds are below the best answer so far.
    """
    screened = asked.screened
    bounds = screened.bounds
    early = ~np.isin(bounds.wall, [WALLS.index(wall) for wall in LATE])
    seen: dict[str, Answer] = {}
    for answer in asked.failed:
        seen.setdefault(answer.inputs.offer.accelerator.id, answer)
    tried: Counter[str] = Counter()
    for index in np.lexsort((bounds.gpus, bounds.short_by, early)).tolist():
        kind = screened.accelerators[index]
        known = seen.get(kind)
        if known is None:
            if len(seen) >= NEAREST_SHOWN:
                continue
        elif (
            known.verdict.wall not in LIMITS
            or bounds.short_by[index] >= known.verdict.short_by
            or tried[kind] >= NEAREST_TRIED
        ):
            continue
        tried[kind] += 1
        try:
            answer = within(configured(asked.question.inputs, screened.configuration(index)), asked.question)
        except (InputError, MissingSpec):
            continue
        if known is None or (
            answer.verdict.wall in LIMITS and answer.verdict.short_by < known.verdict.short_by
        ):
            seen[kind] = answer
    return tuple(list(seen.values())[:NEAREST_SHOWN])


def _reasons(asked: _Asked, plans: list[Answer]) -> tuple[tuple[str, int], ...]:
    """Every configuration that is not shown, by why."""
    screened = asked.screened
    why: Counter[str] = Counter(dict(screened.never)) + asked.walls
    shown = {plan.inputs.offer.accelerator.id for plan in plans}
    walls, counts = np.unique(screened.bounds.wall[~screened.possible], return_counts=True)
    for wall, count in zip(walls, counts, strict=True):
        why[f"{WALLS[wall]}"] += int(count)
    for index in np.flatnonzero(screened.possible).tolist():
        unranked = screened.bounds.objective[index] == inf
        if screened.accelerators[index] in shown:
            why[WORSE] += 1
        else:
            why[NO_PRICE if unranked else DEARER] += 1
    why[WORSE] -= len(plans) + asked.walls.total()
    return tuple((reason, count) for reason, count in why.most_common() if count > 0)
