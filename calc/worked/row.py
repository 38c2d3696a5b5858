"""One row of a table of answers (levers, plans, deployments) as worked formulas, in the order of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from calc.result import Answer
from calc.scenario import Fidelity
from calc.sizing import Limit
from calc.worked.answer import worked_sequences_of, worked_times
from calc.worked.formula import Worked
from calc.worked.plan import (
    serving_of,
    worked_capacity,
    worked_cost,
    worked_gpus,
    worked_replicas,
    worked_utilisation,
)
from calc.worked.serving import worked_serving
from calc.worked.substitution import formulas_of, symbols_of

PROMISES = {Limit.TPOT: "tpot_under_load_s", Limit.TTFT: "ttft_under_load_s", Limit.E2E: "e2e_s"}


def worked_row(result: Answer) -> tuple[Worked, ...]:
    """Replicas, GPUs, TTFT, TPOT, cost, busy, sequences, tokens per second of a GPU; nothing for what does not work."""
    if not result.verdict.fits or result.fleet is None:
        return ()
    return (
        *worked_replicas(result),
        worked_gpus(result),
        *(replace(line, about=name.upper()) for name, line in worked_times(result).items()),
        *(replace(line, about="cost") for line in worked_cost(result)),
        *worked_utilisation(result),
        *_sequences(result),
        *worked_capacity(result),
    )


def _sequences(result: Answer) -> Iterator[Worked]:
    """Sequences that fit, and where a promise ends them first, what it is at so many."""
    if result.sequences is None:
        return
    count, binding = result.sequences.batch, result.sequences.binding
    if result.inputs.scenario.fidelity == Fidelity.TEXTBOOK:
        yield from _textbook_sequences(result)
        return
    yield from (
        replace(line, about=line.about or "sequences that fit") for line in worked_sequences_of(result)
    )
    if binding in PROMISES and count >= 1 and not result.inputs.scenario.disaggregated:
        output = result.inputs.scenario.workload.output.mean_tokens
        lines = worked_serving(serving_of(result, float(count)), users=float(count), output_tokens=output)
        found = next(line for line in lines if line.formula == PROMISES[binding])
        yield replace(found, about=f"with {count:,} sequences, the most of those tried that keep the target")


def _textbook_sequences(result: Answer) -> Iterator[Worked]:
    sequences = result.sequences
    if sequences is None:
        return
    shown = {"sequences_paged": sequences.paged, "sequences_reserved": sequences.reserved}
    for name in formulas_of(result, "sequences"):
        yield Worked(
            formula=name,
            inputs=symbols_of(result, "sequences"),
            result=shown[name],
            about="sequences that fit",
        )
