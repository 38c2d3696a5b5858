"""`ridgebeam plan`: which GPUs, how many, what users feel, what it costs, what limits it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from calc.errors import InputError
from commands.arguments import (
    INFEASIBLE,
    OK,
    add_fidelity,
    add_formats,
    add_layout,
    add_traffic,
    emit,
    not_negative,
    positive,
    refuse_alone,
    seed,
    tokens,
    verb,
)
from commands.patience import patience
from commands.plan_models import run_models
from commands.plan_options import add_limits, add_search, asked
from commands.plan_sweep import run_sweep

if TYPE_CHECKING:
    from calc.plan.ranking import Ranking
    from calc.plan.space import Question
    from calc.plan.verify import Verified
    from calc.result import Answer
    from calc.scenario import Scenario


def add(verbs: Any) -> None:
    parser = verb(verbs, "plan", run, "which GPUs, how many, what users feel, what it costs")
    parser.add_argument(
        "source", metavar="SOURCE", nargs="?", help="as for model; not needed with --service-s"
    )
    parser.add_argument("--revision", default="")
    parser.add_argument(
        "--gpu",
        action="extend",
        nargs="+",
        metavar="ID",
        help="several to compare; default: the catalogue",
    )
    add_layout(parser)
    add_formats(parser)
    add_traffic(parser)
    parser.add_argument(
        "--kv-bytes-per-gpu", type=positive, help="room for the cache, instead of what is left"
    )
    parser.add_argument("--device-memory-gib", type=positive)
    parser.add_argument("--no-paging", action="store_true", help="reserve --max-model-len for every sequence")
    parser.add_argument("--max-model-len", type=tokens)
    parser.add_argument("--max-seqs", type=tokens, help="sequences at once, of a replica")
    parser.add_argument("--usd-per-gpu-hour", type=not_negative, help="your own price")
    parser.add_argument("--top", type=tokens, default=5)
    parser.add_argument(
        "--verify",
        action="store_true",
        help="simulate the first plans; where the promise fails, add GPUs until it holds, and rank again",
    )
    parser.add_argument(
        "--models",
        action="extend",
        nargs="+",
        metavar="ID",
        help="in place of SOURCE: which of these suits the one accelerator of --gpu best, and in which format",
    )
    parser.add_argument(
        "--sensitivity",
        action="store_true",
        help="ask the first plan again at both ends of every assumption",
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the simulated traffic")
    parser.add_argument(
        "--service-s",
        type=positive,
        metavar="S",
        help="an endpoint that serves one request at a time, each taking S seconds on average: how many replicas",
    )
    parser.add_argument(
        "--sweep-rate", nargs="+", type=positive, metavar="R", help="the best plan at each of these rates"
    )
    parser.add_argument("--scheduler", metavar="ADDR", help="Dask scheduler that the sweep runs on")
    add_search(parser)
    add_limits(parser)
    add_fidelity(parser)


def run(arguments: argparse.Namespace) -> int:
    from calc.plan.ranking import ranked
    from calc.plan.verify import verify

    refuse_alone(
        "--scheduler", arguments.scheduler, useful=bool(arguments.sweep_rate), without="--sweep-rate"
    )
    if arguments.service_s is not None:
        return _endpoint(arguments)
    if arguments.models:
        return run_models(arguments)
    if arguments.source is None and len(arguments.gpu or ()) > 1:
        # `--gpu ID SOURCE`: the list of ids has taken the model as its last
        arguments.source = arguments.gpu.pop()
    if arguments.source is None or arguments.input is None or arguments.output is None:
        raise InputError("plan", "no model or lengths", "a plan needs SOURCE, --input and --output")
    if arguments.sweep_rate:
        return run_sweep(arguments)
    refuse_alone(
        "--pools",
        arguments.pools,
        useful=arguments.reuse_after is None and arguments.concurrency is None,
        without="--rate, and text of --prefix-share that is always in the cache (no --reuse-after)",
    )
    question = asked(arguments).question
    ranking = ranked(question, top=arguments.top)
    verified = None
    if arguments.verify and ranking.plans:
        with patience():
            verified = verify(ranking, question, seed=arguments.seed)
    shown = _proven_first(ranking, verified)[: arguments.top]
    record, lines = _report(ranking, shown or _nearest_failures(question, ranking))
    if verified is not None:
        _add_proofs(verified, record, lines)
    if arguments.sensitivity and shown:
        _add_sensitivity(shown[0], record, lines)
    lines.append(
        f"searched {ranking.candidates:,} candidates, asked the full model about {ranking.answered:,}"
    )
    lines += [f"rejected: {count} x {why}" for why, count in ranking.rejected]
    emit(arguments, record, lines)
    proven = verified is None or record["plans"][0]["verified"]["replicas"]
    return OK if ranking.plans and proven else INFEASIBLE


def _report(ranking: Ranking, shown: Sequence[Answer]) -> tuple[dict[str, Any], list[str]]:
    """The record and the lines of what was found; where nothing works, of what came nearest."""
    from calc import contract
    from calc.levers import lever_effects
    from calc.result import headline

    works = bool(ranking.plans)
    record: dict[str, Any] = {
        "plans": [contract.plan_json(result) for result in shown] if works else [],
        "levers": [contract.lever_json(effect) for effect in lever_effects(shown[0])] if works else [],
        "rejected": [{"why": why, "count": count} for why, count in ranking.rejected],
        "searched": {
            "candidates": ranking.candidates,
            "answered": ranking.answered,
            "proven": ranking.proven,
        },
    }
    if not works:
        record["nearest"] = [contract.plan_json(result) for result in shown]
    return record, [line for result in shown for line in (headline(result), *_details(result))]


def _add_proofs(verified: Verified, record: dict[str, Any], lines: list[str]) -> None:
    """What the simulator said: under the first plan, and in a list of every plan that was tried."""
    from calc.contract import proof_json
    from calc.proof import headline_of

    first = verified.best or verified.tried[0]
    record["plans"][0]["verified"] = proof_json(first.proof)
    record["proofs"] = [
        {"gpu": proven.planned.inputs.offer.accelerator.id, **proof_json(proven.proof)}
        for proven in verified.tried
    ]
    lines.insert(2, f"  {headline_of(first.proof)}{f' ({first.note})' if first.note else ''}")


def _add_sensitivity(plan: Answer, record: dict[str, Any], lines: list[str]) -> None:
    """How far the first plan moves when its assumptions do."""
    from calc.sensitivity import headline_of, sensitivity, sensitivity_json

    found = sensitivity(plan)
    record["plans"][0]["sensitivity"] = sensitivity_json(found)
    lines.append(headline_of(found))


def _details(result: Answer) -> list[str]:
    """How the GPUs are laid out, what users feel at peak and what it costs; nothing for what does not work."""
    from calc import format as fmt

    if not result.verdict.fits or result.fleet is None:
        return []
    replicas = fmt.plural(result.fleet.replicas, "replica")
    price = "no price known"
    if result.cost.usd_per_hour is not None:
        price = f"{fmt.usd(result.cost.usd_per_hour)} an hour"
    felt = f"TTFT {fmt.optional(result.ttft_s, fmt.seconds)}, TPOT {fmt.optional(result.tpot_s, fmt.seconds, 'none')}"
    busy = fmt.percent(result.fleet.utilization)
    runs_as = "".join(f", {text}" for text in _chosen(result.inputs.scenario))
    return [f"  {replicas} of {result.layout.label}{runs_as}, {busy} busy; {felt}; {price}"]


def _chosen(scenario: Scenario) -> list[str]:
    """What a search may choose and a label does not say: formats, engine and the way of batching, where not the default."""
    plain = type(scenario)()
    said = {
        "quantization": f"weights in {scenario.quantization}",
        "kv_dtype": f"cache in {scenario.kv_dtype}",
        "engine": f"on {scenario.engine}",
        "max_batched_tokens": f"{scenario.max_batched_tokens} tokens a step",
        "max_seqs": f"at most {scenario.max_seqs} sequences each",
        "chunked_prefill": "prompts whole",
        "prefix_caching": "no prefix cache",
        "draft_tokens": f"{scenario.draft_tokens} drafts a pass",
        "disaggregated": "prompts in a pool of their own",
        "kv_offload": f"cached text also on {scenario.kv_offload}",
    }
    return [text for name, text in said.items() if getattr(scenario, name) != getattr(plain, name)]


def _proven_first(ranking: Ranking, verified: Verified | None) -> list[Answer]:
    """The ranked plans, the proven ones with the replicas that their proofs found and in their new order."""
    if verified is None:
        return list(ranking.plans)
    simulated = [proven.plan or proven.planned for proven in verified.tried]
    kinds = {plan.inputs.offer.accelerator.id for plan in simulated}
    return [*simulated, *(p for p in ranking.plans if p.inputs.offer.accelerator.id not in kinds)]


def _nearest_failures(question: Question, ranking: Ranking) -> list[Answer]:
    """The failures that came nearest, each with the changes that would make it work."""
    from calc.answer import answer, nearest_changes
    from calc.plan.search import LIMITS
    from calc.verdict import Wall

    failed, offers = ranking.failed, question.offers[question.inputs.scenario.engine]
    if len(offers) == 1 and not failed:
        alone = answer(replace(question.inputs, offer=offers[0]))  # raises what is missing, by name
        failed = () if alone.verdict.fits else (alone,)
    nearest = []
    for result in sorted(failed, key=lambda result: result.verdict.short_by)[:3]:
        # what is nearest is asked without the question's limits: it could not know a way past one
        if result.verdict.wall in (Wall.CONTEXT, *LIMITS):
            nearest.append(result)
            continue
        changes = nearest_changes(replace(result.inputs, catalogue=question.inputs.catalogue), result)
        nearest.append(replace(result, verdict=replace(result.verdict, nearest=changes)))
    return nearest


def _endpoint(arguments: argparse.Namespace) -> int:
    """Replicas of an endpoint that serves one request at a time, by M/M/1 with random routing."""
    from calc import format as fmt
    from calc.contract import endpoint_json

    if arguments.rate is None or arguments.e2e is None:
        raise InputError("plan", "no --rate or no --e2e", "--service-s needs --rate and the target --e2e")
    record = endpoint_json(
        rate_per_s=arguments.rate,
        service_s=arguments.service_s,
        limit_s=arguments.e2e,
        percentile=arguments.percentile,
    )
    if not record["plans"]:
        emit(arguments, record, [f"Does not work: {record['rejected'][0]['why']}."])
        return INFEASIBLE
    plan = record["plans"][0]
    replicas, busy = fmt.plural(plan["replicas"], "replica"), fmt.percent(plan["utilization"])
    reached = f"{plan['measure']} {fmt.seconds(plan['e2e_s']['best'])}"
    emit(arguments, record, [f"{replicas}, {busy} busy: mean {fmt.seconds(plan['mean_s'])}, {reached}"])
    return OK
