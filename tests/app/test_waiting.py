"""Room is held for a page until its title has been seen once; a rerun keeps what stands, another page holds room again."""

import pytest
from streamlit.testing.v1 import AppTest

pytestmark = pytest.mark.app


def a_page():
    import streamlit as st

    from pages._waiting import arrive, hold, release

    arrive(st.session_state["page"])
    hold(68, 20)
    if st.session_state["done"]:
        release()
        st.title("The finding")


def visit(app, page, *, done):
    app.session_state["page"], app.session_state["done"] = page, done
    return app.run()


def test_room_is_held_until_the_title_comes():
    app = AppTest.from_function(a_page)
    assert len(visit(app, "size", done=False).get("skeleton")) == 2
    assert len(visit(app, "size", done=False).get("skeleton")) == 2  # interrupted: not seen yet
    assert not visit(app, "size", done=True).get("skeleton")
    assert app.title[0].value == "The finding"
    assert not visit(app, "size", done=False).get("skeleton")  # a rerun
    assert len(visit(app, "fleet", done=False).get("skeleton")) == 2


def a_page_with_a_chart():
    import streamlit as st

    from pages._waiting import arrive, give_up, hold_until_drawn, release

    arrive("fleet")
    opened = hold_until_drawn(300)
    st.caption("below")
    release()
    if st.session_state["fails"]:
        give_up()
        return
    with opened():
        st.metric("drawn", 1)


def test_room_that_waits_for_its_content_outlives_the_title_and_goes_with_an_error():
    app = AppTest.from_function(a_page_with_a_chart)
    app.session_state["fails"] = True
    assert not app.run().get("skeleton")
    assert not app.metric
    fresh = AppTest.from_function(a_page_with_a_chart)
    fresh.session_state["fails"] = False
    for _ in range(2):  # the first run, and one that finds the page seen
        fresh.run()
        assert not fresh.get("skeleton")
        assert [one.label for one in fresh.metric] == ["drawn"]


@pytest.mark.parametrize("file", ["size.py", "fleet.py"])
def test_no_skeleton_is_left_on_a_page(open_page, file):
    assert not open_page(file).get("skeleton")
