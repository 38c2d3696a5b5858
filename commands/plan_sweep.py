"""`ridgebeam plan --sweep-rate`: the best plan at each of many rates, spread over processes or a cluster."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from calc.errors import RidgebeamError
from commands.arguments import INFEASIBLE, OK, emit


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One rate of a sweep: the arguments of the whole command, and the rate in their place. Travels to a worker."""

    arguments: dict[str, Any]
    rate_per_s: float


def run_sweep(arguments: argparse.Namespace) -> int:
    """Each rate is one task; with --verify each best plan is proven where it was found."""
    from calc.executor import executor_for

    given = {name: value for name, value in vars(arguments).items() if name != "run"}
    tasks = [Task(arguments=given, rate_per_s=rate) for rate in arguments.sweep_rate]
    found = executor_for(arguments.scheduler).map(best_at, tasks)
    lines = [f"{row['rate_per_s']:g} requests/s: {row['headline']}" for row in found]
    emit(arguments, {"sweep": found}, lines)
    return OK if all(row["plan"] for row in found) else INFEASIBLE


def best_at(task: Task) -> dict[str, Any]:
    """The best plan at one rate as a record; an error of one rate is said in its row and stops no other."""
    from calc import contract
    from calc.plan.ranking import ranked
    from calc.plan.verify import verify
    from calc.result import headline
    from commands.plan_options import asked

    arguments = argparse.Namespace(**{**task.arguments, "rate": task.rate_per_s, "concurrency": None})
    row: dict[str, Any] = {"rate_per_s": task.rate_per_s, "plan": None}
    try:
        question = asked(arguments).question
        ranking = ranked(question, top=arguments.top)
        plans = [*ranking.plans, *ranking.failed]
        if not plans:
            return row | {"headline": "no accelerator has the numbers that the question needs"}
        shown = plans[0]
        if arguments.verify and ranking.plans:
            verified = verify(ranking, question, seed=arguments.seed)
            first = verified.best or verified.tried[0]
            shown = first.plan or first.planned
            row["verified"] = contract.proof_json(first.proof)
            if first.plan is None:
                return row | {"headline": f"refuted: {headline(shown)}"}
    except RidgebeamError as error:
        return row | {"headline": str(error)}
    works = contract.plan_json(shown) if shown.verdict.fits else None
    return row | {"headline": headline(shown), "plan": works}
