"""Rows of the sidebar: a closed one draws what differs from its default, so that the link and other pages keep it."""

import pytest
from reading import unfolded

from pages import _controls as table
from pages._control_values import DEFAULT
from pages._sidebar import SCENARIO_KEY

pytestmark = pytest.mark.app

ROWS = {
    "more-model": table.MODEL_MORE,
    "more-hardware": table.HARDWARE_MORE,
    "more-workload": table.WORKLOAD_MORE,
    "more-fidelity": table.FIDELITY_MORE,
}


def drawn(app):
    boxes = (*app.number_input, *app.text_input, *app.selectbox, *app.toggle)
    return {box.key for box in boxes}


def names(controls):
    return {control.parameter for control in controls}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_draws_its_controls_once_it_is_open(open_page, row):
    app = open_page("methods.py")
    assert not names(ROWS[row]) & drawn(app)
    assert names(ROWS[row]) <= drawn(unfolded(app, row))


def test_what_a_link_says_is_held_in_closed_rows_on_every_page(open_page):
    app = open_page(headroom="0.5", pp="2", chunked="false", util="0.8", rate="7")
    for _ in range(2):
        assert drawn(app) >= {"headroom", "pp", "chunked", "util"}
        scenario = app.session_state[SCENARIO_KEY]
        assert (scenario.headroom, scenario.pp, scenario.chunked_prefill) == (0.5, 2, False)
        assert (scenario.memory_utilization, scenario.rate_per_s) == (0.8, 7.0)
        assert app.query_params["headroom"] == "0.5"
        app.switch_page("methods.py").run()


def test_a_value_stays_when_its_row_is_closed_and_goes_back_to_the_default(open_page):
    app = unfolded(open_page("methods.py"), "more-workload")
    app.number_input(key="headroom").set_value(0.75).run()
    app.session_state["more-workload"] = False
    app.run()
    assert drawn(app) & names(table.WORKLOAD_MORE) == {"headroom"}
    assert app.session_state[SCENARIO_KEY].headroom == 0.75
    app.number_input(key="headroom").set_value(DEFAULT.headroom).run()
    app.number_input(key="rate").set_value(3.0).run()
    assert not drawn(app) & names(table.WORKLOAD_MORE)
    assert app.session_state[SCENARIO_KEY].headroom == DEFAULT.headroom


def test_a_form_that_was_opened_keeps_what_is_typed_into_it(open_page):
    app = open_page("methods.py")
    assert "own_name" not in drawn(app)
    unfolded(app, "more-accelerator").session_state["more-accelerator"] = False
    assert {"own_name", "own_memory_gb"} <= drawn(app.run())
