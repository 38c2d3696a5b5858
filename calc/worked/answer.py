"""The steps of an answer at roofline and expected fidelity as worked formulas (the textbook's are in `calc.worked.substitution`)."""

from __future__ import annotations

from collections.abc import Iterator

from calc.expected import engine_settings, tokens_of_pass
from calc.memory.engines import ledger
from calc.operators import ForwardPass
from calc.replica_model import replica_model
from calc.result import Answer
from calc.scenario import Fidelity, Traffic
from calc.worked.formula import Worked
from calc.worked.forward_pass import WorkedPass
from calc.worked.memory import worked_ledger, worked_running
from calc.worked.plan import (
    at_this_load,
    full_replica,
    prompt_of,
    worked_cost,
    worked_gpus,
    worked_replicas,
    worked_utilisation,
)
from calc.worked.substitution import symbols_of


def worked_step(result: Answer, step: str) -> tuple[Worked, ...]:
    """One step (memory, sequences, decode, prefill, fleet) of an answer that has a ledger; empty where it was not reached."""
    made = {
        "memory": _memory,
        "sequences": worked_sequences_of,
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
    prompt, cached = prompt_of(result)
    return WorkedPass(
        model=replica_model(result.inputs, result.layout),
        step=ForwardPass.prefill(prompt - cached, prefix=cached),
    )


def _memory(result: Answer) -> Iterator[Worked]:
    if result.ledger is not None:
        yield from worked_ledger(result.ledger)


def worked_sequences_of(result: Answer) -> Iterator[Worked]:
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
    yield from at_this_load(result)
    yield Worked(
        formula="requests_in_system",
        inputs={"arrivals_per_s": fleet.rate_per_s, "time_in_system_s": float(fleet.e2e_s.best)},
        result=fleet.active,
    )
    # with text that may be forgotten, a full replica holds other text than one at this load
    if scenario.traffic == Traffic.RATE and not fleet.prefill_replicas and scenario.reuse_after_s is None:
        yield from full_replica(result)
    yield from worked_replicas(result)
    yield worked_gpus(result)
    yield from worked_utilisation(result)
    yield from worked_cost(result)


def worked_metrics(result: Answer) -> dict[str, Worked]:
    """The formula behind each headline number, by "gpus", "ttft", "tpot", "cost" and "utilisation", as far as it was reached."""
    if result.fleet is None or result.decode is None or result.prefill is None:
        return {}
    replicas = list(worked_replicas(result))
    alone = len(replicas) == 1 and replicas[0].result == result.gpus
    found = {"gpus": replicas[0] if alone else worked_gpus(result)}
    found["utilisation"] = next(worked_utilisation(result))
    cost = {line.formula: line for line in worked_cost(result)}
    if "usd_per_million_tokens" in cost:
        found["cost"] = cost["usd_per_million_tokens"]
    return found | worked_times(result)


def worked_times(result: Answer) -> dict[str, Worked]:
    """The formulas behind "ttft" and "tpot" as the answer tells them."""
    if result.prefill is None or result.decode is None:
        return {}
    if result.inputs.scenario.fidelity == Fidelity.TEXTBOOK:
        symbols = {step: symbols_of(result, step) for step in ("prefill", "decode")}
        found = {
            "ttft": Worked(
                formula="prefill_s", inputs=symbols["prefill"], result=float(result.prefill.prefill_s.best)
            )
        }
        if result.tpot_s is not None:
            shown = float(result.tpot_s.best)
            found["tpot"] = Worked(formula="decode_step_s", inputs=symbols["decode"], result=shown)
        return found
    lines = {line.formula: line for line in at_this_load(result)}
    found = {"ttft": lines.get("pool_ttft_s", lines["ttft_under_load_s"])}
    return found | ({"tpot": lines["tpot_under_load_s"]} if result.tpot_s is not None else {})
