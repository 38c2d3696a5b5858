"""Text of others is shown, never run: on pages, and in files that are passed on."""

import csv
import io
import json
import re
from functools import partial
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from pages._registry import PAGES
from pages._ui import plain_text, to_csv

FRAME = str(Path(__file__).parents[2] / "pages/_frame.py")
EVIL = "me/a![pixel](http://evil.example/p)[link](http://evil.example)<img src=x onerror=alert(1)>$x$:red[y]"
CARD = (
    "typed:memory=48GB,bandwidth=1000GB/s,16bit=100TFLOPS,8bit=200TFLOPS,link=50GB/s,node=4,power=300W,"
    "name=![p](http://evil.example/p)<img src=x>:red[y]"
)
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
LIVE = re.compile(r"(?<!\\)(?:!\[|\]\(|<img|:red\[|\$x)")  # signs that no backslash keeps literal
SPOKEN = (
    "title",
    "header",
    "subheader",
    "markdown",
    "caption",
    "error",
    "warning",
    "info",
    "success",
    "badge",
)


def said(app):
    """Every Markdown text on a page that holds the name."""
    for kind in SPOKEN:
        for element in app.get(kind):
            value = getattr(element, "value", None) or getattr(element.proto, "body", "")
            if "evil.example" in value.replace("\\", ""):
                yield value


@pytest.mark.app
@pytest.mark.parametrize("entry", PAGES, ids=lambda entry: entry.file)
def test_no_text_of_others_becomes_markup(entry, monkeypatch):
    """A model's name and an accelerator's, in one run: AppTest cannot send back a model that is no option of the box.

    Before that run AppTest would take a page's file for its address, so the address is given.
    """
    monkeypatch.setattr(st, "expander", partial(st.expander, expanded=True))  # closed rows draw nothing
    app = AppTest.from_file(FRAME, default_timeout=240)
    app.query_params["model"], app.query_params["gpu"] = EVIL, CARD
    app.session_state["config_text"] = json.dumps(CONFIG)
    app.session_state["copy-link"] = app.session_state["file"] = True
    app._page_hash = calc_hash(entry.url_path)
    app.run()
    assert app._finished_page_script_hash == calc_hash(entry.url_path)
    assert not app.exception
    assert app.title[0].value
    for text in said(app):
        assert not LIVE.search(text), text


def test_what_is_shown_literally_reads_as_it_was_typed():
    assert plain_text("a_b") == "a\\_b"
    assert plain_text(EVIL).replace("\\", "") == EVIL
    assert "](" not in plain_text(EVIL)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_cells_are_no_formulas(start):
    (row,) = csv.DictReader(
        io.StringIO(to_csv([{"model": f"{start}cmd|' /C calc'!A0", "value": -3.5}]), newline="")
    )
    assert row["model"].startswith("'")
    assert float(row["value"]) == -3.5
