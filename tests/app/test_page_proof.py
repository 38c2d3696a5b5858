"""Size a deployment: other accelerators are ranked, and the plan is proven in place."""

from pathlib import Path

import pytest
from reading import text_of, titles
from streamlit.testing.v1 import AppTest

pytestmark = pytest.mark.app
FRAME = str(Path(__file__).parents[2] / "pages/_frame.py")


def test_the_plan_is_proven_in_place():
    app = AppTest.from_file(FRAME, default_timeout=240).run()
    assert "serve this" in app.title[0].value
    app.button(key="prove").click().run(timeout=240)
    assert not app.exception
    assert "Proven by simulation" in app.success[0].value
    assert {"TTFT p99", "Breaks above"} <= {metric.label for metric in app.metric}


def test_other_accelerators_are_ranked_with_dated_prices():
    app = AppTest.from_file(FRAME, default_timeout=120)
    app.session_state["step-plans"] = True  # the row is open
    app.run()
    assert not app.exception
    assert any("Cheapest: " in text_of(text) for text in app.markdown)
    assert any("Why not the others" in text_of(text) for text in app.markdown)
    app.toggle(key="plan-whole-nodes").set_value(True).run()
    (cheapest,) = [text_of(text) for text in app.markdown if "Cheapest: " in text_of(text)]
    assert "whole node" in cheapest
    name = cheapest.split(" x ")[1].split(" (")[0]
    app.button(key="plan-0").click().run()
    assert name in titles(app)[0]
    assert not app.exception
