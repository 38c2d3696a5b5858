"""Text of others is shown, never run: on pages, and in files that are passed on."""

import csv
import io
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import streamlit as st
from published_run import a100
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from calc.endpoint.plan import TestPlan
from calc.endpoint.run import EndpointRun
from calc.endpoint.samples import sample_from_json
from calc.errors import ProbeError
from pages._endpoint_job import ERROR_KEY, RECORD_KEY, RUN_KEY
from pages._registry import PAGES
from pages._ui import plain_text, to_csv
from probes import store

FRAME = str(Path(__file__).parents[2] / "pages/_frame.py")
EVIL = "me/a![pixel](http://evil.example/p)[link](http://evil.example)<img src=x onerror=alert(1)>$x$:red[y]"
SHORT = "![p](http://evil.example/p)<img src=x>:red[y]"
CARD = (
    "typed:memory=48GB,bandwidth=1000GB/s,16bit=100TFLOPS,8bit=200TFLOPS,link=50GB/s,node=4,power=300W,"
    f"name={SHORT}"
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
    for table in app.table:
        for cell in map(str, table.value.to_numpy().ravel()):
            if "evil.example" in cell.replace("\\", ""):
                yield cell


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


def on_page(url_path, **state):
    app = AppTest.from_file(FRAME, default_timeout=240)
    for key, value in state.items():
        app.session_state[key] = value
    app._page_hash = calc_hash(url_path)
    app.run()
    assert not app.exception
    return app


@pytest.mark.app
def test_a_run_that_came_as_a_file_becomes_no_markup(monkeypatch, tmp_path):
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    run = a100(bandwidth=300e9)  # far from what is usual, so that a finding speaks of it
    run["device"] |= {"name": f"A100 {SHORT}", "driver": SHORT, "catalogue": None}
    run["state"] = {"remarks": [SHORT]}
    run["problems"] = [{"probe": SHORT, "case": SHORT, "kind": "crashed", "message": SHORT}]
    store.import_run(json.dumps(run))
    app = on_page("this-gpu")
    texts = list(said(app))
    assert len(texts) >= 2
    for text in texts:
        assert not LIVE.search(text), text


@pytest.mark.app
def test_a_load_test_of_somebody_elses_server_becomes_no_markup():
    times = {"scheduled_s": 0.0, "start_s": 0.0, "first_s": 0.1, "last_s": 0.6, "end_s": 0.7}
    sample = sample_from_json(
        {"stage": "decode", "prompt_tokens": 64, "output_tokens": 11, "chunks": 11, **times}
    )
    run = EndpointRun(
        target=f"http://127.0.0.1:9/{SHORT}",
        api="openai",
        model=SHORT,
        plan=TestPlan(prompt_lengths=(64,), concurrency=(1,)),
        samples=(sample, replace(sample, stage="prefill"), replace(sample, stage="concurrency 1")),
        server={"engine": SHORT},
        server_means={},
        waiting={},
        client={},
        notes=(SHORT,),
        wall_s=4.0,
    )
    error = ProbeError(f"The server said {SHORT}.", next_step=f"Ask {SHORT}.")
    app = on_page("endpoint", **{RUN_KEY: run, RECORD_KEY: {}, ERROR_KEY: error})
    texts = list(said(app))
    assert len(texts) >= 2
    for text in texts:
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
