"""The frame around every page: configuration, the scenario in the sidebar, navigation, the actions at the top right."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from calc.errors import RidgebeamError
from pages._actions import GO_TO_KEY, draw_actions
from pages._registry import PAGES
from pages._sidebar import draw_sidebar, link_notices
from pages._ui import plain_text, show_error, show_title
from pages._waiting import ROW_PX, TITLE_PX, arrive, give_up, hold

HERE = Path(__file__).parent


def main() -> None:
    """One run of the app: whatever the page, the same scenario."""
    st.set_page_config(
        page_title="Ridgebeam", page_icon=str(HERE / "icon.svg"), layout="wide", initial_sidebar_state="auto"
    )
    st.logo(str(HERE / "logo.svg"), size="large")
    sections: dict[str, list[st.Page]] = {}
    pages: dict[str, st.Page] = {}
    for entry in PAGES:
        pages[entry.url_path] = page = st.Page(
            entry.file, title=entry.title, icon=entry.icon, url_path=entry.url_path, default=entry is PAGES[0]
        )
        sections.setdefault(entry.section, []).append(page)
    chosen = st.navigation(sections, position="top")
    wanted = st.session_state.pop(GO_TO_KEY, None)
    if wanted in pages and pages[wanted].url_path != chosen.url_path:
        st.switch_page(pages[wanted])
    arrive(chosen.url_path)
    actions = st.container()
    with actions:
        row = hold(ROW_PX)
    hold(*TITLE_PX)
    try:
        draw_sidebar(chosen.url_path)
    except RidgebeamError as error:
        show_title("This scenario cannot be answered as it stands.")
        show_error(error)
        return
    for notice in link_notices():
        st.info(plain_text(notice), icon=":material/link:")
    with actions:
        row.empty()
        draw_actions()
    try:
        chosen.run()
    except RidgebeamError as error:
        give_up()
        show_title("This question cannot be answered as it stands.")
        show_error(error)


main()
