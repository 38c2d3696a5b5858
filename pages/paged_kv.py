"""Paged KV: why blocks instead of reservations, played on the real allocator."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.answer import Answer
from calc.paging_story import BLOCK_SIZE, NUM_BLOCKS, RESERVED_TOKENS, Action, Pool, Story, play
from calc.textbook import sequences_paged, sequences_reserved
from pages._inputs import current_answer
from pages._paging_figure import grid_figure, grid_finding
from pages._ui import (
    predict_first,
    show_chart,
    show_data,
    show_ignored,
    show_maths,
    show_title,
)

STORY_KEY = "_paging_story"
FIRST: Story = (Action.ADD, Action.ADD, Action.ADD, Action.ADD, Action.ADD)
RESERVED_DEFAULT = 4096
MOST_ACTIONS = 400
ICONS = {
    Action.ADD: ":material/add:",
    Action.ADD_SHARED: ":material/share:",
    Action.FORK: ":material/call_split:",
    Action.WRITE: ":material/edit:",
    Action.FINISH: ":material/check:",
}


def main() -> None:
    """The scenario in one sentence, then a small pool to play with."""
    result = current_answer()
    values = _values(result)
    reserved, paged = (
        int(sequences_reserved(**_pick(values, "tokens", "reserved_tokens"))),
        int(sequences_paged(**_pick(values, "tokens", "sequence_tokens", "block_size"))),
    )
    show_title(
        f"Reserving {fmt.count(values['reserved_tokens'])} tokens fits {fmt.plural(reserved, 'request')}; paging fits {fmt.count(paged)}.",
        f"The scenario's cache of {fmt.count(values['tokens'])} tokens, requests that end with {fmt.count(values['sequence_tokens'])}.",
    )
    predict_first(
        key="paged",
        question="How many token slots can a paged sequence waste at most, in blocks of 16, however long it is?",
        unit="slots",
        answer=BLOCK_SIZE - 1,
        reading=fmt.plural(BLOCK_SIZE - 1, "slot"),
        arithmetic=["Only its last block can be partly empty: 16 - 1."],
    )
    story: Story = st.session_state.setdefault(STORY_KEY, FIRST)
    st.subheader(f"A pool of {NUM_BLOCKS} blocks to play with", anchor=False)
    with st.container(horizontal=True):
        for action in Action:
            st.button(
                action.capitalize(),
                key=f"paged-{action.name}",
                icon=ICONS[action],
                on_click=_do,
                args=(action,),
            )
        st.button("Start over", key="paged-reset", icon=":material/restart_alt:", on_click=_reset)
    played = play(story)
    left, right = st.columns(2)
    for column, pool, name in (
        (left, played.reserved, f"Reserving {RESERVED_TOKENS} tokens each"),
        (right, played.paged, "Paged"),
    ):
        with column:
            st.markdown(f"**{name}**: {_counters(pool)}")
            show_chart(grid_figure(pool), alt=grid_finding(pool), key=f"paged-{pool.name}")
    st.caption("Newest last: " + ("; ".join(played.log[-6:]) or "nothing happened yet") + ".")
    show_maths(("sequences_reserved", "sequences_paged", "largest_paged_waste"), values)
    show_data([_row(played.reserved), _row(played.paged)], key="paged-data", name="ridgebeam-paging")
    show_ignored(
        "What attention over scattered blocks costs in time.",
        "Engines that group layers by window (page Memory).",
    )


def _values(result: Answer) -> dict[str, float]:
    scenario = result.inputs.scenario
    kept = scenario.input_tokens + scenario.output_tokens
    return {
        "tokens": float(max(0, result.memory.tokens)),
        "reserved_tokens": float(max(kept, scenario.max_model_len or RESERVED_DEFAULT)),
        "sequence_tokens": kept,
        "block_size": float(BLOCK_SIZE),
    }


def _pick(values: dict[str, float], *names: str) -> dict[str, float]:
    return {name: values[name] for name in names}


def _do(action: Action) -> None:
    story = st.session_state.get(STORY_KEY, FIRST)
    st.session_state[STORY_KEY] = (*story, action)[-MOST_ACTIONS:]


def _reset() -> None:
    st.session_state[STORY_KEY] = FIRST


def _counters(pool: Pool) -> str:
    away = f", {pool.turned_away} turned away" if pool.turned_away else ""
    saved = f", {fmt.count(pool.saved_slots)} slots saved by sharing" if pool.saved_slots else ""
    return f"{fmt.plural(pool.requests, 'request')}{away}, {fmt.count(pool.wasted_slots)} slots held but empty{saved}"


def _row(pool: Pool) -> dict[str, object]:
    return {
        "cache": pool.name,
        "requests": pool.requests,
        "turned_away": pool.turned_away,
        "used_slots": pool.used_slots,
        "wasted_slots": pool.wasted_slots,
        "saved_slots": pool.saved_slots,
    }


main()
