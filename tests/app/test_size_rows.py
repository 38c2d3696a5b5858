"""The rows of *Size a deployment* that compute when they are opened."""

from pathlib import Path

import pytest
from reading import rows_of, text_of
from streamlit.testing.v1 import AppTest

pytestmark = pytest.mark.app

FRAME = str(Path(__file__).parents[2] / "pages/_frame.py")


def opened(*rows, **query):
    app = AppTest.from_file(FRAME, default_timeout=120)
    for name, value in query.items():
        app.query_params[name] = value
    for row in rows:
        app.session_state[row] = True
    app.run()
    assert not app.exception
    return app


def test_how_sure_the_answer_is():
    app = opened("step-sensitivity", fidelity="textbook")
    said = [text_of(text) for text in app.markdown]
    assert any("over everything assumed" in text for text in said)
    names = [row["assumption"] for table in app.table for row in rows_of(table) if "assumption" in row]
    assert {"request rate", "MFU of prefill", "target utilisation"} <= set(names)


def test_what_it_costs_beside_an_api():
    app = opened("step-costs", fidelity="textbook", price="2")
    app.number_input(key="cost-api-in").set_value(0.5)
    app.number_input(key="cost-api-out").set_value(1.5)
    app.number_input(key="cost-reserved").set_value(1.0).run()
    assert not app.exception
    said = [text_of(text) for text in app.markdown]
    assert any(
        "beats the API's $0.00064 per request" in text for text in said
    )  # 512 x 0.5 + 256 x 1.5 per million
    assert any(text.startswith("**Following the day costs") for text in said)
    tenures = [row["tenure"] for table in app.table for row in rows_of(table) if "tenure" in row]
    assert tenures == ["on demand", "reserved"]


def test_a_plan_is_handed_over():
    app = opened("step-handover", fidelity="textbook")
    assert any(code.value.startswith("vllm serve meta-llama/Llama-2-13b-hf") for code in app.code)
    assert any("Flags checked against" in text_of(text) for text in app.markdown)
    assert any(code.value.endswith("ollama serve") for code in app.code)
