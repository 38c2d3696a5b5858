"""The report is one document that runs nothing, loads nothing, and says what the page says."""

import re
from html.parser import HTMLParser

import pytest

from calc.answer import answer
from calc.formulas import FORMULAS
from calc.scenario import Scenario
from pages._answer_metrics import answer_metrics
from pages._plain_maths import plain_maths
from pages._report import report
from presets.resolve import resolve

PLAIN = re.compile(r"[\d.,+\-·×^/() ]+")


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.opened, self.closed, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.opened.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_endtag(self, tag):
        self.closed.append(tag)


def made(**scenario):
    result = answer(resolve(Scenario(**scenario)))
    return report(result, answer_metrics(result), link="http://127.0.0.1/?v=1", made_on="1 May 2026")


def test_it_says_what_the_page_says():
    text = made(kv_bytes_per_gpu=50e9, fidelity="textbook")
    assert "3 x A100 SXM4 80GB serve this" in text
    assert "33.1 ms" in text
    assert "79 sequences fit" in text
    assert "max(" in text
    assert "huggingface" in text or "Bundled" in text
    assert "vllm serve meta-llama/Llama-2-13b-hf" in text
    assert "over everything assumed" in text
    assert "Not modelled" in text
    assert "@media print" in text


@pytest.mark.parametrize("scenario", [{}, {"model": "meta-llama/Llama-2-70b-hf", "gpu": "rtx-4060", "tp": 1}])
def test_it_is_whole_and_loads_nothing(scenario):
    text = made(**scenario)
    tags = Tags()
    tags.feed(text)
    assert not {"script", "link", "img", "iframe"} & set(tags.opened)
    assert not {"src", "href", "onclick", "onload"} & set(tags.attributes)
    assert set(tags.opened) - {"meta", "br"} == set(tags.closed) - {"br"}


def test_user_text_is_escaped():
    config = '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, '
    config += '"num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 4096}'
    text = made(model="<img src=x onerror=alert(1)>", config_text=config)
    assert "<img" not in text
    assert "&lt;img" in text


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS)
def test_plain_maths_still_computes_its_result(formula):
    text = plain_maths(formula.substituted(formula.example.inputs))
    assert not set("\\{}$") & set(text.replace("$", "", 1))
    right = text.split(" = ")[1]
    if PLAIN.fullmatch(right):
        python = right.replace(",", "").replace("·", "*").replace("×", "*").replace("^", "**")
        computed = eval(re.sub(r"(?<=[\d)])\(", "*(", python))
        assert computed == pytest.approx(float(formula.value(formula.example.inputs)), rel=1e-3)
