"""Batch size: throughput and step time against batch, with the walls that end it."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.curves import BatchCurve, batch_curve
from calc.errors import MissingSpec
from calc.result import Answer, headline
from calc.scenario import Fidelity
from calc.sizing import Limit
from calc.worked.answer import decode_pass, worked_step
from calc.worked.formula import Worked
from calc.worked.plan import at_the_target
from calc.worked.substitution import symbols_of
from pages._figures import batch_figure, batch_finding
from pages._inputs import current_answer
from pages._levers import BINDING, show_unserved
from pages._sidebar import current_scenario, show_scenario
from pages._ui import (
    Metric,
    plain_text,
    predict_first,
    show_chart,
    show_data,
    show_ignored,
    show_maths,
    show_metrics,
    show_title,
    show_worked_maths,
)
from presets.scenarios import BATCH_LESSONS, ReadyScenario


def main() -> None:
    """The curve at the scenario's fidelity, and at others where they are asked for."""
    result = current_answer()
    if result.decode is None:
        show_unserved(result)
        return
    curve = batch_curve(result, current_scenario().fidelity)
    show_title(
        _headline(curve) if result.verdict.fits else headline(result),
        f"One replica of {result.layout.label}, {fmt.count(_context(result))} cached tokens each.",
    )
    predict_first(
        key="batch",
        question=f"If twice as many sequences ran together, {fmt.count(2 * curve.at)} instead of "
        f"{fmt.count(curve.at)}, how many times the tokens per second would that give?",
        unit="times",
        answer=curve.gain_of_doubling,
        reading=f"{fmt.factor(curve.gain_of_doubling)} the tokens per second",
        arithmetic=[
            (
                f"A step of {fmt.count(curve.at)} takes {fmt.seconds(curve.at_step_s.best)}, one of "
                f"{fmt.count(2 * curve.at)} takes {fmt.seconds(curve.doubled_step_s.best)}: the weights are read once for "
                f"all, but each sequence brings its own cache to read. Twice the tokens over "
                f"{fmt.factor(curve.doubled_step_s.best / curve.at_step_s.best)} the time."
            )
        ],
    )
    show_metrics(_metrics(result, curve))
    others = [str(fidelity) for fidelity in Fidelity if fidelity != curve.fidelity]
    compared = st.pills("Compare with", others, selection_mode="multi", key="batch-fidelities")
    curves = [curve, *_others(result, compared)]
    show_chart(
        batch_figure(curves, tpot_target_s=result.inputs.scenario.slo.tpot_s),
        alt=batch_finding(curve),
        key="batch-curve",
    )
    with st.container(horizontal=True):
        for lesson in BATCH_LESSONS:
            st.button(
                lesson.title,
                key=f"lesson-{lesson.id}",
                on_click=_start_from,
                args=(lesson,),
                help=lesson.question,
            )
    if curve.fidelity == Fidelity.TEXTBOOK:
        show_maths(
            ("decode_step_s", "tokens_per_s", "memory_bound_batch"),
            symbols_of(result, "decode"),
            key="batch-maths",
        )
    else:
        show_worked_maths(lambda: _worked(result, curve), key="batch-maths")
    show_data(lambda: _rows(curves), key="batch-data", name="ridgebeam-batch")
    show_ignored(
        "Prompts that share the steps: they lengthen the TPOT of an answer, and are counted there and in GPUs.",
        "Sequences of different lengths: each holds the mean context.",
    )


def _worked(result: Answer, curve: BatchCurve) -> list[Worked]:
    """The step at the marked batch, the rate that it makes, and the sequences that memory holds."""
    return [
        *decode_pass(result, batch=float(curve.at)).whole(),
        _rate(curve),
        *worked_step(result, "sequences"),
        *(at_the_target(result, curve.target) if curve.target else ()),
    ]


def _rate(curve: BatchCurve) -> Worked:
    """Tokens per second of the marked batch."""
    return Worked(
        formula="tokens_per_s",
        inputs={"batch": curve.at, "step_s": float(curve.at_step_s.best)},
        result=float(curve.at_tokens_per_s.best),
    )


def _headline(curve: BatchCurve) -> str:
    why = "memory ends it" if curve.ended_by is Limit.KV_MEMORY else f"the {BINDING[curve.ended_by]} ends it"
    return (
        f"Batch {fmt.count(curve.at)} is where {why}: {fmt.plain(curve.at_tokens_per_s.best, 'tokens/s')} "
        f"at {fmt.seconds(curve.at_step_s)} a decode step."
    )


def _context(result: Answer) -> float:
    return result.decode.context_tokens if result.decode else 0.0


def _others(result: Answer, fidelities: list[str]) -> list[BatchCurve]:
    found = []
    for fidelity in fidelities:
        try:
            found.append(batch_curve(result, fidelity))
        except MissingSpec as error:
            st.caption(plain_text(error.message))
    return found


def _metrics(result: Answer, curve: BatchCurve) -> list[Metric]:
    kind = curve.at_step_s.provenance
    return [
        Metric(
            label="Batch",
            reading=fmt.count(curve.at),
            help="The smaller of the KV wall and the batch at the target.",
        ),
        Metric(
            label="Tokens per second",
            reading=fmt.significant(float(curve.at_tokens_per_s.best)),
            help="Output tokens of one replica at this batch.",
            worked=_rate(curve),
            provenance=kind,
        ),
        Metric(
            label="Step",
            reading=fmt.seconds(curve.at_step_s),
            help="One decode step at this batch; *Show the maths*, below, adds it up.",
            provenance=kind,
        ),
        Metric(
            label="KV wall",
            reading=fmt.plural(curve.wall, "sequence"),
            help="Sequences whose caches fit; *Show the maths*, below, counts them.",
        ),
        Metric(
            label="Batch at the target",
            reading=fmt.optional(curve.target, fmt.count, "no target"),
            help=f"The largest whose step, with other prompts in between, keeps the TPOT target: "
            f"{fmt.optional(result.inputs.scenario.slo.tpot_s, fmt.seconds, 'none')}.",
        ),
    ]


def _rows(curves: list[BatchCurve]) -> list[dict[str, object]]:
    return [
        {"fidelity": c.fidelity, "batch": b, "step_s": float(s), "tokens_per_s": float(r)}
        for c in curves
        for b, s, r in zip(c.batch, c.step_s.best, c.tokens_per_s.best, strict=True)
    ]


def _start_from(lesson: ReadyScenario) -> None:
    show_scenario(lesson.scenario)


main()
