"""Parts of *Speculative decoding*: the draft in numbers, its step times at the real batch, and two simulations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from calc import format as fmt
from calc.errors import RidgebeamError
from calc.scenario import Fidelity, Scenario
from calc.speculation_curves import (
    BATCHES,
    PASSES,
    Sampled,
    sampled_tokens_per_pass,
    simulated_speedups,
    speedup_by_batch,
    speedup_by_length,
    worked_drafts,
)
from pages._inputs import BY_VALUE, TTL, answer_for, current_answer
from pages._sidebar import current_scenario
from pages._ui import folded, show_error, show_formulas, show_worked

SEED = 1
SIMULATED_BATCHES = (1, 16, 128)
MOST_BATCH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A draft, and the batch that it is checked in."""

    acceptance: float
    drafts: int
    draft_cost: float
    batch: int


def draw_controls() -> Asked:
    """Acceptance, length and cost of the draft; the batch is the scenario's unless one is typed."""
    row = st.columns(4, vertical_alignment="bottom")
    acceptance = row[0].slider("Acceptance", 0.0, 0.99, 0.8, 0.01, key="spec_acceptance", bind="query-params")
    drafts = row[1].slider("Drafted tokens", 1, 12, 4, key="spec_drafts", bind="query-params")
    cost = row[2].slider(
        "Draft pass over target pass", 0.0, 1.0, 0.05, 0.01, key="spec_cost", bind="query-params"
    )
    batch = row[3].number_input(
        "Batch (0: the scenario's)", 0, MOST_BATCH, 0, key="spec_batch", bind="query-params"
    )
    return Asked(
        acceptance=float(acceptance),
        drafts=int(drafts),
        draft_cost=float(cost),
        batch=int(batch) or _scenario_batch(),
    )


def _scenario_batch() -> int:
    try:
        decode = current_answer().decode
    except RidgebeamError:
        return 1
    return decode.batch if decode else 1


def by_batch_of(asked: Asked) -> tuple[float, ...]:
    """The speed-up at each batch, by the scenario's step model; empty, with the reason on screen, where there is none."""
    try:
        return speedup_by_batch(
            current_answer(),
            acceptance=asked.acceptance,
            drafts=asked.drafts,
            draft_cost=asked.draft_cost,
        )
    except RidgebeamError as error:
        show_error(error)
        return ()


def by_length_of(asked: Asked) -> tuple[float, ...]:
    """The speed-up at the asked batch for each draft length; empty where there are no step times."""
    try:
        return speedup_by_length(
            current_answer(), acceptance=asked.acceptance, draft_cost=asked.draft_cost, batch=asked.batch
        )
    except RidgebeamError:
        return ()  # `by_batch_of` has said why


def best_length(at_batch: Sequence[float]) -> int:
    """The draft length with the largest speed-up."""
    return max(range(len(at_batch)), key=at_batch.__getitem__)


def draft_symbols(asked: Asked) -> dict[str, float]:
    """What the page's formulas are written in."""
    return {
        "acceptance": asked.acceptance,
        "drafts": float(asked.drafts),
        "draft_cost": asked.draft_cost,
    }


def draw_maths(asked: Asked, at_batch: Sequence[float]) -> None:
    """The draft's formulas, then its speed-up and the best length's at the asked batch, with the passes' seconds."""
    with folded("Show the maths", icon=":material/function:", key="spec-maths") as is_open:
        if not is_open:
            return
        show_formulas(("tokens_per_pass", "tokens_per_pass_limit", "speedup"), draft_symbols(asked))
        if at_batch:
            lengths = dict.fromkeys((asked.drafts, max(1, best_length(at_batch))))
            show_worked(
                worked_drafts(
                    current_answer(),
                    acceptance=asked.acceptance,
                    draft_cost=asked.draft_cost,
                    batch=asked.batch,
                    lengths=tuple(lengths),
                )
            )


def draw_sampled(asked: Asked) -> tuple[Sampled, ...]:
    """10,000 passes for each draft length, when asked for."""
    if not st.toggle(f"Simulate {fmt.count(PASSES)} passes for each length", key="spec-simulate"):
        return ()
    sampled = sampled_tokens_per_pass(acceptance=asked.acceptance, seed=SEED)
    here = sampled[asked.drafts]
    st.caption(
        f"{fmt.plural(asked.drafts, 'draft')}: {here.mean:.4g} tokens a pass over {fmt.count(here.passes)} passes, "
        f"{fmt.significant(here.errors_apart, 2)} standard errors from the formula's {here.formula:.4g}. "
        "Crosses carry three standard errors."
    )
    return sampled


@st.cache_data(max_entries=32, ttl=TTL, show_spinner="Simulating", hash_funcs=BY_VALUE | {Asked: repr})
def _served(scenario: Scenario, asked: Asked) -> tuple[float, ...]:
    return simulated_speedups(
        answer_for(scenario),
        acceptance=asked.acceptance,
        drafts=asked.drafts,
        draft_cost=asked.draft_cost,
        batches=SIMULATED_BATCHES,
    )


def draw_simulated(asked: Asked, by_batch: tuple[float, ...]) -> dict[int, float]:
    """The serving simulator with and without the draft, when asked for."""
    textbook = current_scenario().fidelity == Fidelity.TEXTBOOK
    wanted = st.toggle(
        "Simulate serving with the draft at batch " + ", ".join(map(str, SIMULATED_BATCHES)),
        key="spec-serve",
        disabled=textbook,
        help="The textbook's clock does not charge decoding for arithmetic, so checking would look free. Choose another "
        "fidelity."
        if textbook
        else None,
    )
    if not wanted or textbook:
        return {}
    found = dict(zip(SIMULATED_BATCHES, _served(current_scenario(), asked), strict=True))
    said = "; ".join(
        f"batch {batch}: {fmt.factor(gain)} against {fmt.factor(by_batch[BATCHES.index(batch)])}"
        for batch, gain in found.items()
    )
    st.caption(f"Simulated against the formula, {said}.")
    return found
