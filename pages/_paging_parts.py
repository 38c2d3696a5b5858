"""Parts of *Paged KV*: the pool to play with, on the real allocator."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.paging_story import BEAMS, MIXED, SAMPLES, Action, Pool, Setting, Story, play
from pages._paging_figure import grid_figure, grid_finding
from pages._ui import show_chart, show_data, show_side_by_side

STORY_KEY = "_paging_story"
SAMPLES_ASKED = 4
SETTINGS: dict[str, tuple[Setting, Story]] = {
    "Requests of mixed lengths": (MIXED, (Action.ADD,) * 6),
    "Four samples of a prompt of 1,000 tokens": (
        SAMPLES,
        (Action.ADD, *(Action.FORK,) * (SAMPLES_ASKED - 1)),
    ),
    "Four beams of a short prompt": (
        BEAMS,
        (Action.ADD, *(Action.FORK,) * (SAMPLES_ASKED - 1), Action.WRITE, Action.COMPETE),
    ),
}
MOST_ACTIONS = 400
ICONS = {
    Action.ADD: ":material/add:",
    Action.ADD_SHARED: ":material/share:",
    Action.FORK: ":material/call_split:",
    Action.COMPETE: ":material/alt_route:",
    Action.WRITE: ":material/edit:",
    Action.FINISH: ":material/check:",
    Action.RUN_OUT: ":material/block:",
}


def draw_pools() -> None:
    """A small pool to play with, or the lesson's four samples."""
    name = st.pills(
        "Play",
        list(SETTINGS),
        default=next(iter(SETTINGS)),
        required=True,
        key="paged-of",
        on_change=_reset,
        label_visibility="collapsed",
    )
    setting, first = SETTINGS[name]
    story: Story = st.session_state.setdefault(STORY_KEY, first)
    with st.container(horizontal=True):
        for action in Action:
            st.button(
                action.capitalize().replace("tokens", fmt.plural(setting.written_tokens, "token")),
                key=f"paged-{action.name}",
                icon=ICONS[action],
                on_click=_do,
                args=(action, first),
            )
        st.button("Start over", key="paged-reset", icon=":material/restart_alt:", on_click=_reset)
    played = play(story, setting)
    heads = ("Reserved", "Paged", "Shared")
    for place, pool, head in zip(st.columns(3), played.pools, heads, strict=True):
        with place:
            st.markdown(f"**{head}**: {fmt.plural(pool.used_blocks, 'block')}")
            show_chart(grid_figure(pool), alt=grid_finding(pool), key=f"paged-{pool.name}")
    said = "; ".join(played.log[-6:]) or "nothing happened yet"
    st.caption(
        f"Reserved: {fmt.count(setting.reserved_tokens)} tokens each. Shared (and paged), newest last: {said}. Thick edges: "
        "touched by the last action."
    )
    show_side_by_side([_row(pool) for pool in played.pools])
    show_data(
        lambda: [_cell_row(pool, number) for pool in played.pools for number in range(len(pool.cells))],
        key="paged-data",
        name="ridgebeam-paging",
    )


def _do(action: Action, first: Story) -> None:
    story = st.session_state.get(STORY_KEY, first)
    st.session_state[STORY_KEY] = (*story, action)[-MOST_ACTIONS:]


def _reset() -> None:
    st.session_state.pop(STORY_KEY, None)


def _row(pool: Pool) -> dict[str, str]:
    counters = {
        "requests": pool.requests,
        "waiting": pool.waiting,
        "preempted": pool.preemptions,
        "tokens stored": pool.used_slots,
        "reserved, empty": pool.reserved_slots,
        "internal, empty": pool.internal_slots,
        "external, stranded": pool.external_slots,
        "saved by sharing": pool.saved_slots,
    }
    return {"cache": pool.name} | {name: fmt.count(number) for name, number in counters.items()}


def _cell_row(pool: Pool, number: int) -> dict[str, object]:
    cell = pool.cells[number]
    return {
        "cache": pool.name,
        "block": number,
        "requests": " ".join(str(owner + 1) for owner in cell.owners),
        "reference_count": len(cell.owners),
        "filled_slots": cell.filled,
        "hittable": cell.cached,
    }
