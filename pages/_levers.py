"""Levers and nearest changes: a table of what each does, and a button that applies it to the sidebar."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import streamlit as st

from calc import format as fmt
from calc.levers import LeverEffect
from calc.provenance import Estimate
from calc.result import Answer, headline, question
from calc.scenario import Fidelity
from calc.scenario_text import apply_settings
from calc.sizing import Limit
from calc.verdict import Change, Wall
from calc.worked.row import worked_row
from pages._inputs import levers_for
from pages._sidebar import current_scenario, show_scenario
from pages._ui import plain_text, show_row_maths, show_table, show_title

BINDING = {
    Limit.KV_MEMORY: "KV memory",
    Limit.TPOT: "TPOT target",
    Limit.TTFT: "TTFT target",
    Limit.E2E: "end-to-end target",
    Limit.MAX_SEQS: "sequence limit",
    Limit.ENGINE: "engine's limit",
    Limit.PREFIX_HITS: "text that comes back",
}


def draw_levers(result: Answer) -> None:
    """Step 6: what one change at a time would do, found by asking the whole question again, once the row is opened."""
    with st.expander("**6** Levers: what would one change do?", key="step-levers", on_change="rerun") as row:
        if not row.open:
            return
        effects = levers_for(result.inputs.scenario)
        best = max(effects, key=lambda effect: effect.gpus_saved, default=None)
        saved = best.gpus_saved if best else 0
        if best and saved > 0:
            st.markdown(f"**{plain_text(best.lever.change.text)} saves {fmt.plural(saved, 'GPU')}**")
        show_table([lever_row("now", "", result), *map(_effect_row, effects)])
        answers = {"now": result} | {effect.lever.change.text: effect.after for effect in effects}
        show_row_maths(
            {name: functools.partial(worked_row, after) for name, after in answers.items()},
            key="levers-maths",
            of="Change",
        )
        asked = result.inputs.scenario
        if asked.prefix_share > 0 and asked.reuse_after_s is None and asked.fidelity != Fidelity.TEXTBOOK:
            st.caption(
                "KV offload to host memory or an SSD is a lever where repeated text comes back after a while: "
                "say when, in the sidebar under Workload."
            )
        st.caption("Each row is the whole question asked again. Apply one to the scenario:")
        draw_apply([e.lever.change for e in effects if e.lever.change.settings], key="lever")


def draw_nearest(result: Answer) -> None:
    """Where nothing fits: the nearest changes that would, each with its button."""
    if not result.verdict.nearest:
        st.info(
            "No single change of format, GPU or layout in the catalogue makes it work.",
            icon=":material/block:",
        )
        return
    st.markdown("**Nearest changes that would work**")
    draw_apply(result.verdict.nearest, key="nearest")


def show_unserved(result: Answer) -> None:
    """A page about serving where nothing serves: why not, and what would."""
    show_title(headline(result, most_nearest=1), question=question(result.inputs))
    draw_nearest(result)


def show_unheld(result: Answer) -> None:
    """Pages that time an idea on the scenario's replica, where the GPUs cannot hold one: what they show is a thought."""
    if result.verdict.wall in (Wall.WEIGHT_MEMORY, Wall.KV_MEMORY):
        reason = result.verdict.reason.rstrip(".")
        st.warning(plain_text(f"{reason}. What follows leaves that aside."), icon=":material/block:")


def draw_apply(changes: Sequence[Change], *, key: str) -> None:
    """A button per change; it sets the sidebar and the page answers anew."""
    with st.container(horizontal=True):
        for number, change in enumerate(changes):
            st.button(
                plain_text(change.text),
                key=f"{key}-{number}",
                on_click=_apply,
                args=(change,),
                icon=":material/tune:",
            )


def _apply(change: Change) -> None:
    show_scenario(apply_settings(current_scenario(), change.settings))


def _effect_row(effect: LeverEffect) -> dict[str, str]:
    return lever_row(effect.lever.change.text, str(effect.lever.kind), effect.after)


def lever_row(text: str, kind: str, result: Answer) -> dict[str, str]:
    """One line of the levers' table."""
    works = result.verdict.fits and result.sequences and result.decode
    binding = BINDING[result.sequences.binding] if works and result.sequences else str(result.verdict.wall)
    busy = result.fleet.utilization if result.fleet else None
    return {
        "change": text,
        "binds": binding if works else f"does not work: {binding}",
        "GPUs": fmt.count(result.gpus) if works else "none",
        "TTFT": _best(result.ttft_s),
        "TPOT": _best(result.tpot_s),
        "$ per million out": fmt.optional(result.cost.usd_per_million_output, fmt.usd, "no price"),
        "busy": fmt.optional(busy, fmt.percent, "none"),
        "sequences": fmt.count(result.sequences.batch) if result.sequences else "0",
        "tokens/s per GPU": fmt.optional(result.tokens_per_s_per_gpu, fmt.significant, "none"),
        "output": kind,
    }


def _best(time: Estimate | None) -> str:
    return fmt.optional(time.best if time is not None else None, fmt.seconds, "none")
