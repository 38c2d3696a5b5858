"""Speculative decoding: how many tokens a pass yields, and why the gain shrinks as the batch grows."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.errors import RidgebeamError
from calc.speculation_curves import (
    BATCHES,
    PASSES,
    DraftCurve,
    draft_curve,
    sampled_tokens_per_pass,
    speedup_by_batch,
)
from pages._inputs import current_answer
from pages._speculative_figure import draft_figure, draft_finding, gain_figure, gain_finding
from pages._ui import (
    Metric,
    predict_first,
    show_chart,
    show_data,
    show_error,
    show_ignored,
    show_maths,
    show_metrics,
    show_title,
)

SEED = 1
TITLE_BATCH = 128


def main() -> None:
    """Acceptance, draft length and draft cost by hand; the batch comes from the scenario's own step times."""
    acceptance, drafts, cost = _controls()
    curve = draft_curve(acceptance=acceptance, draft_cost=cost)
    by_batch = _by_batch(acceptance, drafts, cost)
    show_title(
        _headline(curve, by_batch, acceptance, drafts),
        "Acceptance is the chance that a drafted token is kept.",
    )
    predict_first(
        key="speculative",
        question=f"However long the draft, how many tokens can one pass yield at most at {fmt.percent(acceptance)} acceptance?",
        unit="tokens",
        answer=1.0 / (1.0 - acceptance),
        reading=f"{fmt.significant(1.0 / (1.0 - acceptance))} tokens",
        arithmetic=[
            f"1 / (1 - {fmt.significant(acceptance)}): a geometric series, however many are drafted."
        ],
    )
    show_metrics(_metrics(curve, by_batch, drafts))
    sampled = sampled_tokens_per_pass(acceptance=acceptance, seed=SEED) if _wants_simulation() else ()
    show_chart(draft_figure(curve, drafts, sampled), alt=draft_finding(curve, drafts), key="spec-drafts")
    if by_batch:
        show_chart(gain_figure(by_batch), alt=gain_finding(by_batch, drafts), key="spec-batch")
    show_maths(
        ("tokens_per_pass", "tokens_per_pass_limit", "speedup"),
        {"acceptance": acceptance, "drafts": float(drafts), "draft_cost": cost},
    )
    show_data(
        [
            {"drafts": n, "tokens_per_pass": tokens, "speedup": gain}
            for n, tokens, gain in zip(curve.drafts, curve.tokens_per_pass, curve.speedup, strict=True)
        ],
        key="spec-data",
        name="ridgebeam-speculative",
    )
    show_ignored(
        "Acceptance that falls along a draft, or differs between texts.",
        "The draft's own memory, and time for sampling and for cache that is thrown away.",
    )


def _controls() -> tuple[float, int, float]:
    row = st.columns(3, vertical_alignment="bottom")
    acceptance = row[0].slider("Acceptance", 0.0, 0.99, 0.8, 0.01, key="acceptance", bind="query-params")
    drafts = row[1].slider("Drafted tokens", 1, 12, 4, key="drafts", bind="query-params")
    cost = row[2].slider(
        "Draft pass over target pass", 0.0, 1.0, 0.05, 0.01, key="draft_cost", bind="query-params"
    )
    return float(acceptance), int(drafts), float(cost)


def _wants_simulation() -> bool:
    return bool(st.toggle(f"Simulate {fmt.count(PASSES)} passes for each length", key="spec-simulate"))


def _by_batch(acceptance: float, drafts: int, cost: float) -> tuple[float, ...]:
    try:
        return speedup_by_batch(current_answer(), acceptance=acceptance, drafts=drafts, draft_cost=cost)
    except RidgebeamError as error:
        show_error(error)
        return ()


def _headline(curve: DraftCurve, by_batch: tuple[float, ...], acceptance: float, drafts: int) -> str:
    tokens, gain = curve.tokens_per_pass[drafts], curve.speedup[drafts]
    start = f"{fmt.plural(drafts, 'draft')} at {fmt.percent(acceptance)} acceptance: {fmt.significant(tokens)} tokens a pass"
    if not by_batch:
        return f"{start}, {fmt.factor(gain)} where checking is free."
    crowded = by_batch[BATCHES.index(TITLE_BATCH)]
    return f"{start}, {fmt.factor(by_batch[0])} at batch 1, {fmt.factor(crowded)} at batch {TITLE_BATCH}."


def _metrics(curve: DraftCurve, by_batch: tuple[float, ...], drafts: int) -> list[Metric]:
    pays = [batch for batch, gain in zip(BATCHES, by_batch, strict=False) if gain > 1]
    return [
        Metric(label="Tokens a pass", reading=fmt.significant(curve.tokens_per_pass[drafts])),
        Metric(label="Speed-up, checking free", reading=fmt.factor(curve.speedup[drafts])),
        Metric(
            label="Best draft length", reading=fmt.plural(curve.best, "token"), help="With checking free."
        ),
        Metric(
            label="Pays up to batch",
            reading=fmt.count(pays[-1]) if pays else "never",
            help=f"Tried up to {BATCHES[-1]}.",
        ),
    ]


main()
