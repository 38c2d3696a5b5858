"""Links whose every parameter is broken: a page that says so, never a traceback."""

import random
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from calc.scenario_text import URL_PARAMETERS

FRAME = str(Path(__file__).parents[2] / "pages/_frame.py")
WORDS = ("model", "gpu", "engine", "rev", "profile", "weights", "kv", "engine_version", "fidelity", "traffic")
BROKEN = (
    "NaN",
    "-1",
    "1e999",
    "",
    "abc",
    "<b>",
    "9" * 400,
    "-inf",
    "\u0663",
    "none",
    "1e308",
    "5e-324",
    "a" * 400,
)

pytestmark = pytest.mark.app


def opened(page, parameters):
    app = AppTest.from_file(FRAME, default_timeout=240)
    for name, text in parameters.items():
        app.query_params[name] = text
    app.switch_page(page).run()
    assert not app.exception, parameters
    assert app.title[0].value
    return app


def test_numbers_beyond_every_float_are_left_out_with_a_notice():
    app = opened("model.py", {"nodes": "1e999", "rate": "-inf", "in": "9" * 400, "out": "300"})
    notices = " ".join(info.value for info in app.info)
    assert all(name in notices for name in ("nodes", "rate", "in"))
    assert app.session_state["out"] == 300


@pytest.mark.parametrize("file", ["size.py", "queueing.py"])
def test_a_link_of_rubbish_opens_a_page(file):
    rng = random.Random(file)
    numbers = [name for name in URL_PARAMETERS if name not in WORDS]
    opened(
        file, {name: rng.choice(BROKEN) for name in [*numbers, "q_n", "q_rate", "sim_seed"]} | {"q_n": "inf"}
    )


def test_a_link_whose_names_mean_nothing_says_what_to_do():
    app = opened("memory.py", dict.fromkeys(WORDS, "../../x"))
    assert app.error
