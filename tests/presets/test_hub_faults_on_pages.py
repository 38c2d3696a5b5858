"""Hub faults as a reader of the page meets them: each a message with a next step, and the page stays usable."""

import random
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest
from test_config_text import QWEN3
from test_hub_faults import FAULTS, PASTE

from presets import hub
from presets.hub_client import Limits

pytestmark = [pytest.mark.hub, pytest.mark.app]

FRAME = str(Path(__file__).parents[2] / "pages/_frame.py")


def test_200_faults_in_a_row_leave_the_app_usable(hub_server, monkeypatch):
    repo = hub_server.add("Qwen/Qwen3-0.6B").put("config.json", QWEN3)
    chance = random.Random(20261129)
    app = AppTest.from_file(FRAME, default_timeout=60)
    app.query_params["model"] = "Qwen/Qwen3-0.6B"  # bundled; at a revision it is asked of the hub
    app.session_state["more-model"] = True  # the row with the box for it is open
    app.run()
    answered = app.title[0].value
    assert not app.error
    patient = hub.LIMITS
    monkeypatch.setattr(hub, "LIMITS", Limits(read_s=0.15, total_s=0.2, redirects=3))
    for number in range(200):
        repo.fault = chance.choice(FAULTS)
        repo.revisions[f"v{number}"] = repo.files
        app.text_input(key="rev").set_value(f"v{number}").run()
        assert not app.exception, app.exception
        (error,) = app.error
        assert PASTE in error.value.replace("\\", "")
    monkeypatch.setattr(hub, "LIMITS", patient)
    repo.fault = ""
    repo.revisions["late"] = repo.files
    for revision in ("", "late", "v7"):
        app.text_input(key="rev").set_value(revision).run()
        assert not app.error
        assert app.title[0].value == answered
