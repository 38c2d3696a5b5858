"""The rows of *Size a deployment* that compute when they are opened."""

from pathlib import Path

import pytest
from reading import rows_of, text_of
from streamlit.testing.v1 import AppTest

from calc.answer import answer
from calc.scenario import Scenario
from pages._steps import step_rows
from presets.resolve import resolve

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


def test_steps_taken_away_stand_in_their_step_and_say_what_the_cards_say():
    result = answer(resolve(Scenario(model="Qwen/Qwen3-0.6B", gpu="l4")))
    rows = step_rows(result)
    step = {row["quantity"]: row["step"] for row in rows}
    assert [step[name] for name in ("tokens", "sequence_tokens", "step_s", "prefill_s", "gpus")] == [
        "memory",
        "sequences",
        "decode",
        "prefill",
        "fleet",
    ]
    value = {row["quantity"]: row["value"] for row in rows}
    assert value["ttft_s"] == result.ttft_s.best > value["prefill_s"]  # others wait as well
    assert value["tpot_s"] == result.tpot_s.best > value["step_s"]  # and their prompts run in between
    assert value["gpus"] == result.gpus


def test_steps_taken_away_of_a_plan_that_does_not_work_end_with_what_is_known():
    beyond = Scenario(model="meta-llama/Llama-3.1-405B-Instruct-FP8", gpu="rtx-3060-12gb")
    names = {row["quantity"] for row in step_rows(answer(resolve(beyond)))}
    assert "weight_bytes" in names
    assert not names & {"ttft_s", "tpot_s", "gpus"}


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


def test_a_better_layout_of_the_same_accelerator_is_said_and_taken_by_a_click():
    asked = {"model": "Qwen/Qwen3-30B-A3B", "gpu": "l40s", "rate": "20"}
    app = opened("step-plans", **asked)
    assert any("row 7 and the verb plan search all" in note.value for note in app.caption)
    (said,) = [text_of(text) for text in app.markdown if "itself the search finds" in text.value]
    before = int(app.metric[0].value)
    found = int(said.split("finds ")[1].split(" ")[0])
    assert found < before
    app.button(key="own-layout-0").click().run()
    assert int(app.metric[0].value) == found
    assert any("keeps the layout that was chosen" in text_of(note) for note in app.caption)
