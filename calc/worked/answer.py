"""The steps of an answer at roofline and expected fidelity as worked formulas (the textbook's are in `calc.worked.substitution`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from calc.expected import engine_settings, tokens_of_pass
from calc.memory.engines import ledger
from calc.operators import ForwardPass
from calc.replica_model import replica_model
from calc.result import Answer
from calc.scenario import Fidelity, Traffic
from calc.step import ServingPoint
from calc.worked.formula import Worked
from calc.worked.forward_pass import WorkedPass
from calc.worked.memory import worked_ledger, worked_running
from calc.worked.serving import worked_serving
from calc.worked.substitution import symbols_of


def worked_step(result: Answer, step: str) -> tuple[Worked, ...]:
    """One step (memory, sequences, decode, prefill, fleet) of an answer that has a ledger; empty where it was not reached."""
    made = {
        "memory": _memory,
        "sequences": _sequences,
        "decode": _decode,
        "prefill": _prefill,
        "fleet": _fleet,
    }
    return tuple(made[step](result))


def decode_pass(result: Answer, *, batch: float | None = None) -> WorkedPass:
    """The decode step of the answer's replica, at its own batch or another."""
    size = batch if batch is not None else float(result.decode.batch if result.decode else 1)
    context = result.decode.context_tokens if result.decode else 0.0
    drafts = result.inputs.scenario.draft_tokens
    return WorkedPass(
        model=replica_model(result.inputs, result.layout),
        step=ForwardPass.verify(size, context, drafts=drafts),
    )


def prefill_pass(result: Answer) -> WorkedPass:
    """The prefill of one prompt alone."""
    prompt, cached = _prompt(result)
    return WorkedPass(
        model=replica_model(result.inputs, result.layout),
        step=ForwardPass.prefill(prompt - cached, prefix=cached),
    )


def _memory(result: Answer) -> Iterator[Worked]:
    if result.ledger is not None:
        yield from worked_ledger(result.ledger)


def _sequences(result: Answer) -> Iterator[Worked]:
    """The pool again at the mean request's length, which is what runs at once."""
    if result.sequences is None:
        return
    inputs = result.inputs
    kept = max(1, round(inputs.scenario.input_tokens + inputs.scenario.output_tokens))
    settings = engine_settings(inputs.scenario, result.layout, max_model_len=kept)
    mean = ledger(inputs.spec, inputs.offer.accelerator, result.layout, settings, nearest=False)
    yield from worked_running(mean)


def _decode(result: Answer) -> Iterator[Worked]:
    if result.decode is None:
        return
    yield from decode_pass(result).whole()
    gained = tokens_of_pass(result.inputs.scenario)
    yield Worked(
        formula="tokens_per_s",
        about="" if gained == 1 else f"each sequence gains {gained:.3g} tokens a pass",
        inputs={"batch": result.decode.batch * gained, "step_s": float(result.decode.time.step_s.best)},
        result=result.decode.tokens_per_s,
    )


def _prefill(result: Answer) -> Iterator[Worked]:
    if result.prefill is not None:
        yield from prefill_pass(result).whole()


def _fleet(result: Answer) -> Iterator[Worked]:
    fleet, sequences, scenario = result.fleet, result.sequences, result.inputs.scenario
    if fleet is None or sequences is None:
        return
    output = scenario.workload.output.mean_tokens
    if not fleet.prefill_replicas:  # pools are sized apart: no formula of one replica gives their times
        yield from _at_this_load(result)
    yield Worked(
        formula="requests_in_system",
        inputs={"arrivals_per_s": fleet.rate_per_s, "time_in_system_s": float(fleet.e2e_s.best)},
        result=fleet.active,
    )
    if scenario.traffic == Traffic.RATE and not fleet.prefill_replicas:
        if scenario.reuse_after_s is None:  # else a full replica holds other text than one at this load
            users = float(max(1, sequences.batch))
            *_, rate = worked_serving(_serving(result, users), users=users, output_tokens=output)
            yield replace(rate, about="a replica that runs as many as it may")
            yield Worked(
                formula="busy_replicas",
                inputs={"rate_per_s": fleet.rate_per_s, "output_tokens": output, "tokens_per_s": rate.result},
                result=fleet.busy,
            )
        yield Worked(
            formula="gpus_to_buy",
            inputs={"busy_gpus": fleet.busy, "headroom": scenario.headroom},
            result=fleet.replicas,
            about="replicas",
        )
    yield from worked_cost(result)


def worked_metrics(result: Answer) -> dict[str, Worked]:
    """The formula behind each headline number, by "gpus", "ttft", "tpot", "cost" and "utilisation", as far as it was reached."""
    fleet, scenario = result.fleet, result.inputs.scenario
    if fleet is None or result.decode is None or result.prefill is None:
        return {}
    found = {
        "utilisation": Worked(
            formula="fleet_utilisation",
            inputs={"busy_gpus": fleet.busy, "replicas": fleet.replicas},
            result=fleet.utilization,
        )
    }
    if scenario.traffic == Traffic.RATE and not fleet.prefill_replicas:
        found["gpus"] = Worked(
            formula="gpus_to_buy",
            inputs={"busy_gpus": fleet.busy, "headroom": scenario.headroom},
            result=fleet.replicas,
        )
    cost = {line.formula: line for line in worked_cost(result)}
    if "usd_per_million_tokens" in cost:
        found["cost"] = cost["usd_per_million_tokens"]
    if scenario.fidelity == Fidelity.TEXTBOOK:
        for name, formula, step, shown in (
            ("ttft", "prefill_s", "prefill", result.prefill.prefill_s),
            ("tpot", "decode_step_s", "decode", result.tpot_s),
        ):
            if shown is None:
                continue
            found[name] = Worked(formula=formula, inputs=symbols_of(result, step), result=float(shown.best))
        return found
    if fleet.prefill_replicas:
        return found
    lines = {line.formula: line for line in _at_this_load(result)}
    tpot = {"tpot": lines["tpot_under_load_s"]} if result.tpot_s is not None else {}
    return found | {"ttft": lines["ttft_under_load_s"]} | tpot


def _at_this_load(result: Answer) -> tuple[Worked, ...]:
    fleet, output = result.fleet, result.inputs.scenario.workload.output.mean_tokens
    users = max(1.0, fleet.active_per_replica) if fleet is not None else 1.0
    return worked_serving(_serving(result, users), users=users, output_tokens=output)


def worked_cost(result: Answer) -> Iterator[Worked]:
    """What the deployment costs an hour and per million output tokens, where a price is known."""
    price, cost = result.inputs.offer.usd_per_gpu_hour, result.cost
    if price is None or cost.usd_per_hour is None or result.fleet is None:
        return
    yield Worked(
        formula="usd_per_hour",
        inputs={"gpus": result.gpus, "usd_per_gpu_hour": price},
        result=cost.usd_per_hour,
    )
    if cost.usd_per_million_output is not None:
        yield Worked(
            formula="usd_per_million_tokens",
            inputs={
                "usd_per_hour": cost.usd_per_hour,
                "tokens_per_s": result.fleet.rate_per_s * result.inputs.scenario.output_tokens,
            },
            result=cost.usd_per_million_output,
        )


def _serving(result: Answer, users: float) -> ServingPoint:
    workload = result.inputs.scenario.workload
    prompt, cached = _prompt(result)
    return replica_model(result.inputs, result.layout).serving(
        input_tokens=prompt,
        output_tokens=workload.output.mean_tokens,
        concurrency=np.array([users]),
        prefix_tokens=cached,
        drafts=result.inputs.scenario.draft_tokens,
        tokens_per_pass=tokens_of_pass(result.inputs.scenario),
        load_s=result.prefill.load_s if result.prefill is not None else 0.0,
    )


def _prompt(result: Answer) -> tuple[float, float]:
    """(tokens of a prompt, those of them that a cache holds) at the answer's load."""
    if result.prefill is not None:
        return result.prefill.prompt_tokens, result.prefill.cached_tokens
    workload = result.inputs.scenario.workload
    prompt = workload.input.mean_tokens
    return prompt, min(prompt * workload.prefix_share, prompt - 1.0)
