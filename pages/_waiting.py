"""Room held for a page's first words and figure while they are worked out, so that nothing jumps when they come.

Only until a page has been seen once: a rerun keeps what stands there, and a skeleton would tear it down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamlit.delta_generator import DeltaGenerator

KEY = "_waiting"
ROW_PX = 40  # of buttons
TITLE_PX = (68, 20)  # a title of two lines, and the small print under it


@dataclass(slots=True)
class _Visit:
    """A visit to a page: whether its title has been seen, and the places that wait for their content in this run.

    `places` wait for the title, `undrawn` for what is drawn in them.
    """

    page: str
    seen: bool = False
    places: list[DeltaGenerator] = field(default_factory=list)
    undrawn: list[DeltaGenerator] = field(default_factory=list)


def arrive(page: str) -> None:
    """Note which page is about to be drawn, by its address; first in every run."""
    visit = st.session_state.get(KEY)
    if not isinstance(visit, _Visit) or visit.page != page:
        st.session_state[KEY] = _Visit(page)
    else:
        visit.places.clear()
        visit.undrawn.clear()


def hold(*heights_px: int) -> DeltaGenerator:
    """Hold room here: a skeleton of each height, until the page's title comes, or until the place is emptied."""
    place = st.empty()
    visit = st.session_state.get(KEY)
    if isinstance(visit, _Visit) and not visit.seen:
        visit.places.append(place)
        with place.container():
            for height_px in heights_px:
                st.skeleton(height=height_px)
    return place


def hold_until_drawn(height_px: int) -> Callable[[], DeltaGenerator]:
    """Hold room for content that comes after what stands below it; what this returns opens the place to draw in.

    Its skeleton goes with the first thing drawn there, not with the title, so that what stands below does not rise meanwhile.
    """
    visit = st.session_state.get(KEY)
    if not isinstance(visit, _Visit) or visit.seen:
        drawn = st.container()
        return lambda: drawn
    place = st.empty()
    with place:
        st.skeleton(height=height_px)
    visit.undrawn.append(place)

    def opened() -> DeltaGenerator:
        visit.undrawn.remove(place)
        return place.container()

    return opened


def release() -> None:
    """Take the skeletons away: what they held room for is drawn next."""
    visit = st.session_state.get(KEY)
    if isinstance(visit, _Visit):
        for place in visit.places:
            place.empty()
        visit.places.clear()
        visit.seen = True


def give_up() -> None:
    """Take away what waits for content that will not come: the page ends with an error."""
    visit = st.session_state.get(KEY)
    if isinstance(visit, _Visit):
        for place in visit.undrawn:
            place.empty()
        visit.undrawn.clear()
