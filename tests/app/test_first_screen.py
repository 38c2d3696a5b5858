"""What a first visitor reads: the question, the answer, what was assumed; and how text keeps its shape on a phone."""

from dataclasses import replace

import pytest
from reading import text_of, titles

from calc.answer import answer
from calc.curves import memory_bar
from calc.result import headline, question
from calc.scenario import Scenario
from pages._figures import memory_figure
from pages._ui import STRUT, formula_lines, in_lines
from presets.resolve import resolve

pytestmark = pytest.mark.app


def test_the_question_stands_above_its_answer(open_page):
    app = open_page()
    asked = next(text_of(one) for one in app.markdown if text_of(one).startswith("Which GPUs serve"))
    assert asked == (
        "Which GPUs serve meta-llama/Llama-2-13b-hf at 10 requests/s of 512 tokens in and 256 out, TPOT within 50 ms?"
    )
    assert titles(app)[0] == headline(answer(resolve(Scenario())))
    assert " x A100 SXM4 80GB serve this. " in titles(app)[0]
    assumed = next(text_of(one) for one in app.caption if text_of(one).startswith("Assumed"))
    assert "vLLM's memory rules" in assumed
    assert "API server" not in assumed  # the engine's defaults stand in the memory step
    assert any("defaults of the API server" in text_of(one) for one in app.markdown)


@pytest.mark.parametrize(("query", "is_example"), [({}, True), ({"rate": "11"}, False)])
def test_only_the_first_scenario_is_called_an_example(open_page, query, is_example):
    purpose = next(text_of(one) for one in open_page(**query).caption if text_of(one).startswith("Ridgebeam"))
    assert ("Here is an example" in purpose) is is_example


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"traffic": "users", "users": 40}, "to 40 users at once, each request 512 tokens in and 256 out"),
        ({"ttft_s": 2.0, "percentile": 99.0}, "TTFT within 2 s and TPOT within 50 ms for 99% of requests?"),
        ({"tpot_s": None}, "at 10 requests/s of 512 tokens in and 256 out?"),
    ],
)
def test_the_question_says_traffic_and_targets(change, words):
    assert words in question(resolve(replace(Scenario(), **change)))


def test_the_answer_says_when_work_and_not_room_asks_for_more_replicas():
    long_prompts = replace(Scenario(), model="Qwen/Qwen3-30B-A3B", gpu="h100-sxm5-80gb")
    long_prompts = replace(long_prompts, rate_per_s=12.0, input_tokens=3000, output_tokens=300)
    result = answer(resolve(long_prompts))
    assert result.fleet.active < result.sequences.batch  # one replica has room for all
    assert result.fleet.replicas == 2
    assert headline(result).endswith(f"keep {result.fleet.busy:.3g} of 2 replicas busy.")
    crowded = answer(resolve(replace(Scenario(), rate_per_s=100.0)))
    assert crowded.fleet.active > crowded.sequences.batch
    assert headline(crowded).endswith(f"active at peak over {crowded.fleet.replicas} replicas.")


def test_the_memory_bar_marks_what_binds_before_memory_does():
    result = answer(resolve(Scenario()))
    assert result.sequences.binding == "tpot"
    bar = memory_bar(result)
    share = (bar.limit_bytes - bar.wall_bytes) / dict(bar.parts)["kv"]
    assert 1 + share == pytest.approx(result.sequences.batch / result.sequences.fit)
    labels = [label.text for label in memory_figure(result, bar).checked().layout.annotations]
    assert any(f"TPOT target: {result.sequences.batch} at most" in label for label in labels)
    free = answer(resolve(Scenario(tpot_s=None)))
    assert memory_bar(free).limit_bytes is None  # KV memory itself binds


def test_words_of_a_cell_stay_together_in_lines():
    assert in_lines("160 ms (110 to 220)") == "160\xa0ms\xa0(110\xa0to\xa0220)"
    lines = in_lines("runpod, on demand, 2026-11-09 (21 days old)").split(" ")
    assert [line.replace("\xa0", " ") for line in lines] == [
        "runpod, on demand,",
        "2026-11-09 (21 days",
        "old)",
    ]


def test_a_long_formula_has_its_result_on_a_line_of_its_own():
    assert formula_lines(r"a = \frac{1}{2} = 0.5") == r"a = \frac{1}{2} = 0.5" + STRUT
    terms = " + ".join(["12.5"] * 12)
    first, second = formula_lines(f"t = {terms} = 150").split(r" \\ ")
    assert first.startswith("t = {")
    assert terms in first
    assert second == "= 150"
