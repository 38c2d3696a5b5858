"""The Scheduler page runs the simulator, steps through it by button, key and slider, and says what it found."""

import json

import pytest
from reading import text_of, titles

pytestmark = pytest.mark.app


def spec(app):
    return json.loads(app.get("plotly_chart")[0].proto.spec)


def test_the_lessons_are_in_the_title(open_page):
    assert titles(open_page("scheduler.py"))[0].startswith(
        "Static batching wastes 65% of the slots; continuous"
    )
    second = open_page("scheduler.py", sched_of="answers of 50, 100, 200 and 500 tokens", sched_rounds="1")
    assert titles(second)[0].startswith("Static batching wastes 57.5% of the slots; continuous")


def test_a_long_prompt_is_told_by_its_stall(open_page):
    app = open_page("scheduler.py", sched_of="a long prompt among chats", sched_budget="256")
    assert "tokens stalls running answers for" in titles(app)[0]
    assert any("stall" in note["text"] for note in spec(app)["layout"]["annotations"])


def test_steps_go_back_and_on_and_show_only_what_has_happened(open_page):
    app = open_page("scheduler.py", sched_rounds="1")
    whole = spec(app)
    slider = app.slider(key="_sched_frame")
    assert slider.value == slider.max == 200  # the longest answer of a static batch
    app.button(key="sched-back").click().run()
    assert app.slider(key="_sched_frame").value == 199
    app.button(key="sched-first").click().run()
    app.button(key="sched-next").click().run()
    assert app.slider(key="_sched_frame").value == 2
    said = " ".join(text_of(one) for one in app.caption)
    assert "static: pass 2" in said.replace("*", "")
    begun = spec(app)
    assert sum(map(len, _starts(begun))) <= sum(map(len, _starts(whole)))
    assert not app.exception


def test_play_runs_to_the_end(open_page):
    app = open_page("scheduler.py", sched_rounds="1")
    app.button(key="sched-play").click().run()
    assert not app.exception
    assert app.slider(key="_sched_frame").value < 200


def _starts(chart):
    return [trace["base"] for trace in chart["data"]]
