"""A gated model through the app: read with the reader's token, which then is nowhere."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest
from test_config_text import QWEN3

pytestmark = [pytest.mark.hub, pytest.mark.app]

FRAME = str(Path(__file__).parents[2] / "pages/_frame.py")
MODEL = "Qwen/Qwen3-0.6B"
TOKEN = "hf_TopSecretTokenForTests0123456789"


@pytest.fixture
def app(hub_server):
    repo = hub_server.add(MODEL, gated=True, tokens=(TOKEN,)).put("config.json", QWEN3)
    repo.revisions["private"] = repo.files
    return opened()


def opened():
    """The app, with the row for such models open, at a revision of a bundled model, which is therefore asked of the hub."""
    app = AppTest.from_file(FRAME, default_timeout=120)
    app.query_params["model"], app.query_params["rev"] = MODEL, "private"
    app.session_state["more-model"] = True
    return app.run()


def test_the_token_reads_the_config_and_is_gone(app, hub_server, tmp_path, caplog):
    assert "none was given" in app.error[0].value.replace("\\", "")
    app.text_input(key="hub_token").set_value(TOKEN)
    app.button(key="read-gated").click().run()
    assert not app.exception
    assert not app.error
    assert json.loads(app.text_area(key="config_text").value)["model_type"] == "qwen3"
    assert f"Bearer {TOKEN}" in {request.authorization for request in hub_server.requests}
    assert app.session_state["hub_token"] == ""
    kept = repr(app.session_state._state.filtered_state)
    assert "qwen3" in kept
    assert TOKEN not in kept
    assert TOKEN not in str(app.query_params) + caplog.text
    assert not [
        file for file in tmp_path.rglob("*") if file.is_file() and TOKEN.encode() in file.read_bytes()
    ]


def test_a_wrong_token_says_so_and_is_gone_too(app):
    app.text_input(key="hub_token").set_value("hf_OfSomebodyElse0000000000000000000")
    app.button(key="read-gated").click().run()
    assert not app.exception
    assert len(app.error) >= 1
    assert app.text_input(key="hub_token").value == ""
    assert app.text_area(key="config_text").value == ""


def test_another_reader_is_not_served_what_the_token_read(app, hub_server):
    app.text_input(key="hub_token").set_value(TOKEN)
    app.button(key="read-gated").click().run()
    assert not app.error
    other = opened()
    assert "none was given" in other.error[0].value.replace("\\", "")
