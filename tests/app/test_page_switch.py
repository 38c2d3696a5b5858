"""A page that is left before the browser has drawn it: what the link said still holds, here and in the browser."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from calc.scenario_text import from_query
from pages._sidebar import PROBLEMS_KEY, SCENARIO_KEY

pytestmark = pytest.mark.app

FRAME = str(Path(__file__).parents[2] / "pages/_frame.py")


@pytest.fixture
def left_early():
    """The link's first page was run, and the browser asks for the next one without any of the link's parameters."""
    app = AppTest.from_file(FRAME, default_timeout=240)
    app.query_params["rate"] = "25"
    app.query_params["kv"] = "fp8"
    app.run()
    app.query_params.clear()
    return app.switch_page("methods.py")


def test_the_browser_is_told_again_what_it_had_no_time_to_draw(left_early):
    app = left_early.run()
    assert float(app.query_params["rate"]) == 25
    rate, kv = app.number_input(key="rate"), app.selectbox(key="kv")
    assert (rate.value, rate.proto.value, rate.proto.set_value) == (25, 25, True)
    assert (kv.value, kv.proto.raw_value, kv.proto.set_value) == ("fp8", "fp8", True)
    assert not app.number_input(key="in").proto.set_value  # a default needs no telling


def test_a_run_that_was_stopped_before_its_scenario_was_kept():
    app = AppTest.from_file(FRAME, default_timeout=240)
    app.session_state[PROBLEMS_KEY] = from_query({"rate": "25"})
    app.run()
    assert app.session_state[SCENARIO_KEY].rate_per_s == 25


def test_a_later_run_of_the_same_page_tells_nothing(left_early):
    app = left_early.run()
    app.number_input(key="in").set_value(777).run()
    assert not app.number_input(key="rate").proto.set_value
    assert not app.number_input(key="in").proto.set_value
    assert app.session_state[SCENARIO_KEY].input_tokens == 777
