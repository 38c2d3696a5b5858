"""Speculative decoding: how many tokens a pass yields, and why the gain shrinks as the batch grows."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from calc import format as fmt
from calc.speculation_curves import BATCHES, DraftCurve, Sampled, draft_curve
from calc.worked.formula import Worked
from pages._inputs import current_answer
from pages._levers import show_unheld
from pages._speculative_figure import draft_figure, draft_finding, gain_figure, gain_finding
from pages._speculative_parts import (
    Asked,
    best_length,
    by_batch_of,
    by_length_of,
    draft_symbols,
    draw_controls,
    draw_maths,
    draw_sampled,
    draw_simulated,
)
from pages._ui import (
    Metric,
    predict_first,
    show_chart,
    show_data,
    show_ignored,
    show_metrics,
    show_title,
)

TITLE_BATCH = 128


def main() -> None:
    """Acceptance, draft length and draft cost by hand; the batch and its step times are the scenario's."""
    title = st.container()
    asked = draw_controls()
    curve = draft_curve(acceptance=asked.acceptance, draft_cost=asked.draft_cost)
    by_batch, at_batch = by_batch_of(asked), by_length_of(asked)
    with title:
        show_title(
            _headline(curve, by_batch, asked), "Acceptance is the chance that a drafted token is kept."
        )
        show_unheld(current_answer())
    _predict(asked.acceptance)
    show_metrics(_metrics(curve, by_batch, at_batch, asked))
    sampled = draw_sampled(asked)
    show_chart(
        draft_figure(curve, asked.drafts, batch=asked.batch, at_batch=at_batch, sampled=sampled),
        alt=draft_finding(curve, asked.drafts, batch=asked.batch, at_batch=at_batch),
        key="spec-drafts",
    )
    if by_batch:
        simulated = draw_simulated(asked, by_batch)
        show_chart(
            gain_figure(by_batch, simulated), alt=gain_finding(by_batch, asked.drafts), key="spec-batch"
        )
    draw_maths(asked, at_batch)
    show_data(lambda: _rows(curve, at_batch, sampled), key="spec-data", name="ridgebeam-speculative")
    show_ignored(
        "Acceptance that falls along a draft, or differs between texts.",
        "The draft's own memory, and time for sampling and for cache that is thrown away.",
    )


def _predict(acceptance: float) -> None:
    limit = 1.0 / (1.0 - acceptance)
    predict_first(
        key="speculative",
        question=f"However long the draft, how many tokens can one pass yield at most at {fmt.percent(acceptance)} acceptance?",
        unit="tokens",
        answer=limit,
        reading=f"{fmt.significant(limit)} tokens",
        arithmetic=[
            f"1 / (1 - {fmt.significant(acceptance)}): a geometric series, however many are drafted."
        ],
    )


def _headline(curve: DraftCurve, by_batch: Sequence[float], asked: Asked) -> str:
    tokens, gain = curve.tokens_per_pass[asked.drafts], curve.speedup[asked.drafts]
    start = (
        f"{fmt.plural(asked.drafts, 'draft')} at {fmt.percent(asked.acceptance)} acceptance: "
        f"{fmt.significant(tokens)} tokens a pass"
    )
    if not by_batch:
        return f"{start}, {fmt.factor(gain)} where checking is free."
    crowded = by_batch[BATCHES.index(TITLE_BATCH)]
    return f"{start}, {fmt.factor(by_batch[0])} at batch 1, {fmt.factor(crowded)} at batch {TITLE_BATCH}."


def _metrics(
    curve: DraftCurve, by_batch: Sequence[float], at_batch: Sequence[float], asked: Asked
) -> list[Metric]:
    pays = [batch for batch, gain in zip(BATCHES, by_batch, strict=False) if gain > 1]
    here = at_batch[asked.drafts] if at_batch else None
    best = best_length(at_batch) if at_batch else curve.best
    tokens, free = curve.tokens_per_pass[asked.drafts], curve.speedup[asked.drafts]
    return [
        Metric(
            label="Tokens a pass",
            reading=fmt.significant(tokens),
            help="Of the target model, drafts kept and its own token.",
            worked=Worked(formula="tokens_per_pass", inputs=draft_symbols(asked), result=tokens),
        ),
        Metric(
            label="Speed-up, free check",
            reading=fmt.factor(free),
            help="If a pass that checks drafts costs no more than one without.",
            worked=Worked(formula="speedup", inputs=draft_symbols(asked), result=free),
        ),
        Metric(
            label=f"Speed-up at batch {asked.batch}",
            reading=fmt.optional(here, fmt.factor),
            help="With what checking costs at this batch; *Show the maths*, below, has the passes.",
        ),
        Metric(
            label="Best draft length",
            reading=fmt.plural(best, "token"),
            help=f"The largest speed-up at batch {asked.batch}, of all lengths drawn; {curve.best} where checking is free.",
        ),
        Metric(
            label="Pays up to batch",
            reading=fmt.count(pays[-1]) if pays else "never",
            help=f"The largest of the batches drawn with a speed-up over 1; tried up to {BATCHES[-1]}.",
        ),
    ]


def _rows(
    curve: DraftCurve, at_batch: Sequence[float], sampled: Sequence[Sampled]
) -> list[dict[str, object]]:
    return [
        {
            "drafts": n,
            "tokens_per_pass": curve.tokens_per_pass[n],
            "simulated_tokens_per_pass": sampled[n].mean if sampled else None,
            "speedup_checking_free": curve.speedup[n],
            "speedup_at_batch": at_batch[n] if at_batch else None,
        }
        for n in curve.drafts
    ]


main()
