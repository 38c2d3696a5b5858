"""Under the answer: the same question on every accelerator, ranked, and the proof of this plan by simulation."""

from __future__ import annotations

import functools

import streamlit as st

from calc import format as fmt
from calc.levers import plan_change
from calc.plan.ranking import Ranking, other_layout_in_words
from calc.plan.space import Spare, searches_layouts
from calc.proof import Proof, headline_of, prove
from calc.result import Answer, headline
from calc.scenario import Scenario
from calc.simulation.results import SimulationResult
from calc.worked.row import worked_row
from pages._inputs import BY_VALUE, TTL, answer_for, other_layout_for, ranking_for
from pages._levers import draw_apply
from pages._ui import Metric, guarded, plain_text, show_metrics, show_row_maths, show_table

SHOWN = 8
APPLIED = 3  # plans with a button
REASONS = {
    "weight memory": "whose weights do not fit",
    "kv memory": "whose cache does not fit one sequence",
    "ttft": "miss the TTFT target alone",
    "tpot": "miss the TPOT target alone",
    "end to end": "miss the end-to-end target alone",
    "context": "where a request is longer than the model's context",
    "layout": "whose layout the model cannot take",
}
SPARES = {Spare.NONE: "nothing", Spare.REPLICA: "one replica", Spare.NODE: "one node"}
ASKED = "_proof_asked_for"  # the scenario whose proof was asked for in this session


COUNTED = "the simulated requests keep it, counted; *Simulate traffic* runs them one by one, with their CSV."


def draw_plans(result: Answer) -> None:
    """Other accelerators, ranked; worked out when the row is opened, so that the answer itself comes at once."""
    row = st.expander(
        "**7** What to buy: every accelerator and layout searched for this question",
        key="step-plans",
        on_change="rerun",
    )
    if row.open:
        with row:
            guarded(lambda: _draw_search(result))()


def draw_other_layout(result: Answer) -> None:
    """Where the answer keeps to a simple layout and another is better, which; where the layout was chosen, that it is kept."""
    scenario = result.inputs.scenario
    other = other_layout_for(scenario)
    if other is not None:
        st.markdown(f"**{plain_text(other_layout_in_words(result, other))}**")
        draw_apply([plan_change(other)], key="own-layout")
    elif not searches_layouts(scenario):
        st.caption(
            plain_text(
                f"Every plan keeps the layout that was chosen, {result.layout.label}, as the verb plan does; without one "
                "(GPUs per replica: 0, the degrees under More) all layouts are searched."
            )
        )


def _draw_search(result: Answer) -> None:
    """How GPUs are bought and what may fail, then the plans that follow."""
    draw_other_layout(result)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        spare = st.selectbox(
            "What may fail at peak",
            tuple(Spare),
            format_func=SPARES.__getitem__,
            key="plan-spare",
            width=230,
        )
        whole = st.toggle(
            "GPUs come in whole nodes",
            key="plan-whole-nodes",
            help="Every replica that the last node has room for is bought with it.",
        )
    _draw_ranking(ranking_for(result.inputs.scenario, Spare(spare), whole_nodes=whole))


def _draw_ranking(ranking: Ranking) -> None:
    """The cheapest plans, what has no price, and why the others were left out."""
    priced = [plan for plan in ranking.plans if plan.cost.usd_per_hour is not None]
    unpriced = [plan for plan in ranking.plans if plan.cost.usd_per_hour is None]
    st.markdown(f"**{plain_text(_cheapest(priced))}**")
    if ranking.candidates > ranking.answered:
        st.caption(
            f"{ranking.candidates:,} candidates (accelerator, layout, sequences) screened by bounds that no plan can beat; "
            f"the full model was asked about the {ranking.answered:,} that could still be the best."
        )
    if priced:
        shown = priced[:SHOWN]
        show_table([_row(plan) for plan in shown])
        show_row_maths(
            {plan_change(plan).text: functools.partial(worked_row, plan) for plan in shown},
            key="plans-maths",
            of="Plan",
        )
        priced_by = dict.fromkeys(f"{plan.inputs.offer.accelerator.name}: {plan.cost.note}" for plan in shown)
        st.caption(
            "Ranked by list price per hour; each price is the cheapest dated on-demand one. "
            + plain_text("; ".join(priced_by))
            + "."
        )
        draw_apply([plan_change(plan) for plan in shown[:APPLIED]], key="plan")
    _draw_left_out(ranking, unpriced)


def _cheapest(priced: list[Answer]) -> str:
    if not priced:
        return "Nothing with a price serves this."
    best = priced[0]
    name, per_hour = best.inputs.offer.accelerator.name, best.cost.usd_per_hour
    nodes = f" ({fmt.plural(best.nodes, 'whole node')})" if best.nodes is not None else ""
    return f"Cheapest: {best.gpus:,} x {name}{nodes}, {fmt.optional(per_hour, fmt.usd)} per hour."


def _row(plan: Answer) -> dict[str, str]:
    return {
        "accelerator": plan.inputs.offer.accelerator.name,
        "GPUs": fmt.count(plan.gpus),
        "replicas": fmt.optional(plan.fleet.replicas if plan.fleet else None, fmt.count),
        "layout": plan.layout.label,
        "TTFT": fmt.optional(plan.ttft_s, fmt.seconds),
        "TPOT": fmt.optional(plan.tpot_s, fmt.seconds, "none"),
        "busy": fmt.optional(plan.fleet.utilization if plan.fleet else None, fmt.percent),
        "per hour": fmt.optional(plan.cost.usd_per_hour, fmt.usd),
        "per million out": fmt.optional(plan.cost.usd_per_million_output, fmt.usd),
    }


def _draw_left_out(ranking: Ranking, unpriced: list[Answer]) -> None:
    if unpriced:
        names = ", ".join(f"{plan.gpus} x {plan.inputs.offer.accelerator.name}" for plan in unpriced[:SHOWN])
        more = f" and {len(unpriced) - SHOWN} more" if len(unpriced) > SHOWN else ""
        st.markdown(plain_text(f"Would serve, no price known: {names}{more}."))
    if ranking.failed and not ranking.plans:
        st.markdown("Nearest: " + " ".join(plain_text(headline(answer)) for answer in ranking.failed))
    if ranking.rejected:
        reasons = "; ".join(f"{count:,} {REASONS.get(why, why)}" for why, count in ranking.rejected)
        st.markdown(f"Why not the others, by configuration: {reasons}.")


def draw_proof(result: Answer) -> None:
    """A button that simulates this plan's traffic, and what the simulation found."""
    scenario = result.inputs.scenario
    with st.container(key="proof"):
        if st.button("Prove it by simulation", key="prove", icon=":material/verified:"):
            st.session_state[ASKED] = scenario
        if st.session_state.get(ASKED) == scenario:
            with st.spinner("Simulating the traffic (the first time compiles the simulator)"):
                guarded(lambda: _draw_proof_of(scenario))()


def _draw_proof_of(scenario: Scenario) -> None:
    proof = proof_for(scenario)
    (st.success if proof.holds else st.warning)(headline_of(proof))
    shown = proof.proven or proof.planned
    show_metrics(_metrics(proof, shown))
    spare = "" if proof.headroom is None else f" Headroom over the asked rate: {fmt.percent(proof.headroom)}."
    notes = "; ".join(proof.notes)
    st.caption(f"{fmt.count(proof.requests)} requests; {notes}. State: {shown.state}.{spare}")


@st.cache_resource(max_entries=16, ttl=TTL, show_spinner=False, hash_funcs=BY_VALUE)
def proof_for(scenario: Scenario) -> Proof:
    """The proof of the scenario's answer, simulated once."""
    return prove(answer_for(scenario))


def _metrics(proof: Proof, shown: SimulationResult) -> list[Metric]:
    ttft, tpot = shown.spread("ttft_s"), shown.spread("tpot_s")
    return [
        Metric(
            label="Replicas",
            reading=fmt.optional(proof.replicas, fmt.count, "none found"),
            help="The fewest whose simulated requests keep the promise.",
        ),
        Metric(label="TTFT p50", reading=fmt.seconds(ttft.p50), help=f"Half of {COUNTED}"),
        Metric(label="TTFT p99", reading=fmt.seconds(ttft.p99), help=f"99 of 100 of {COUNTED}"),
        Metric(label="TPOT p99", reading=fmt.seconds(tpot.p99), help=f"99 of 100 of {COUNTED}"),
        Metric(
            label="Breaks above",
            reading=fmt.optional(proof.breaks_at_per_s, lambda rate: fmt.plain(rate, "req/s")),
            help="The highest rate at which the same replicas still hold the promise.",
        ),
    ]
