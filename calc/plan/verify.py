"""From ranked plans to a proven one: the simulator on the short list until the promise holds or is refuted.

A plan ranked by means may need more replicas at its percentile under its arrivals. Plans are simulated in their order;
what a proof adds in replicas is paid for, and the next plan is tried only while it could still be better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from calc.errors import InputError
from calc.plan.search import Ranking, rank_key, with_replicas, within
from calc.plan.space import Question
from calc.proof import Proof, prove
from calc.result import Answer
from calc.scenario import Scenario
from calc.sizing import Limit

MOST_PROOFS = 4
CAPPED = "batch capped at what the means allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """A plan with the replicas that its proof found, what was planned before, and the proof. `plan` None: refuted."""

    plan: Answer | None
    planned: Answer
    proof: Proof
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Every plan that was simulated, best proven first; those that were refuted last."""

    tried: tuple[Proven, ...]

    @property
    def best(self) -> Proven | None:
        """The best plan whose promise holds, None where every one tried was refuted."""
        return next((proven for proven in self.tried if proven.plan is not None), None)


def verify(
    ranking: Ranking, question: Question, *, seed: int = 0, told: Callable[[str], None] | None = None
) -> Verified:
    """Simulate the ranked plans until none that is left could beat the best proven one, four at most."""
    tried: list[Proven] = []

    def key(proven: Proven) -> tuple[bool, tuple[float, int, int, float, str]]:
        shown = proven.plan or proven.planned
        return (proven.plan is None, rank_key(question.objective, shown))

    for plan in ranking.plans[:MOST_PROOFS]:
        best = min(tried, key=key, default=None)
        if best is not None and best.plan is not None:
            held = rank_key(question.objective, best.plan)
            if rank_key(question.objective, plan) >= held:
                break
        tried.append(prove_plan(plan, question, seed=seed, told=told))
    return Verified(tried=tuple(sorted(tried, key=key)))


def prove_plan(
    plan: Answer, question: Question, *, seed: int = 0, told: Callable[[str], None] | None = None
) -> Proven:
    """The plan simulated as it is, and where it does not hold also with its batch capped: the cheaper of both."""
    whole = _proven(plan, question, prove(plan, seed=seed, told=told))
    scenario = plan.inputs.scenario
    capped = _capped(plan)
    if whole.proof.holds or capped is None or scenario.slo.tpot_s is None:
        return whole
    try:
        other = _proven(capped, question, prove(capped, seed=seed, told=told), note=CAPPED)
    except InputError:
        return whole
    better = other.plan is not None and (
        whole.plan is None
        or rank_key(question.objective, other.plan) < rank_key(question.objective, whole.plan)
    )
    return other if better else whole


def _capped(plan: Answer) -> Answer | None:
    """The same plan whose engine runs no more sequences at once than the means allow; None where that is so already."""
    scenario: Scenario = plan.inputs.scenario
    if plan.sequences is None or scenario.max_seqs is not None or plan.sequences.binding is Limit.ENGINE:
        return None
    limited = replace(scenario, max_seqs=max(1, plan.sequences.batch))
    return replace(plan, inputs=replace(plan.inputs, scenario=limited))


def _proven(plan: Answer, question: Question, proof: Proof, *, note: str = "") -> Proven:
    if proof.replicas is None:
        return Proven(plan=None, planned=plan, proof=proof, note=note)
    bought = within(
        with_replicas(plan, max(proof.replicas, plan.fleet.replicas if plan.fleet else 1)), question
    )
    return Proven(plan=bought if bought.verdict.fits else None, planned=plan, proof=proof, note=note)
