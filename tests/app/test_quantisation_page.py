"""The *Quantisation* page: its finding, the worked figures, an uploaded tensor, and files that are none."""

import numpy as np
import pytest
from reading import text_of, titles, unfolded
from safetensors.numpy import save

pytestmark = pytest.mark.app


def words(app):
    return " ".join(text_of(one) for one in app.markdown)


def test_the_title_names_the_trade_and_the_study_is_the_worked_case(open_page):
    app = open_page("quantisation.py")
    assert titles(app)[0].startswith("int4 g128 weights decode 2.")
    assert "(0.307 against 0.00646)" in words(app)  # case quant-error: 0.307 and 0.0065, within 0.0006
    (matrix,) = [f.value for f in app.dataframe if "prefill" in f.value.columns]
    assert list(matrix["scheme"])[:2] == ["fp8", "fp8 + fp8 KV"]
    assert "reads it, multiplies in 16 bit" in set(matrix["on this card"])  # an A100 has no fp8 units


def test_a_format_that_the_card_does_not_run_says_so(open_page):
    app = unfolded(open_page("quantisation.py", gpu="mi300x"), "quantisation-support")
    assert "vllm does not serve weights in int4-g128 on Instinct MI300X" in words(app)
    (matrix,) = [f.value for f in app.dataframe if "prefill" in f.value.columns]
    assert matrix.set_index("scheme").loc["int4 g128", "batch 1"] == "-"


def test_an_uploaded_tensor_is_studied_and_a_bad_file_named(open_page):
    app = open_page("quantisation.py")
    app.session_state["quantisation-source"] = "a tensor of mine"
    app.run()
    assert not app.exception
    uploader = next(f for f in app.get("file_uploader") if "safetensors" in str(f.proto))
    weight = np.random.default_rng(1).normal(size=(64, 256)).astype(np.float32)
    uploader.set_value(
        ("layer.safetensors", save({"q_proj.weight": weight}), "application/octet-stream")
    ).run()
    assert not app.exception
    assert "q_proj.weight, 64 x 256, stored as F32" in " ".join(text_of(one) for one in app.caption)
    uploader = next(f for f in app.get("file_uploader") if "safetensors" in str(f.proto))
    uploader.set_value(("poem.safetensors", b"Shall I compare thee to a summer's day?", "text/plain")).run()
    assert not app.exception
    (error,) = app.error
    assert "poem.safetensors" in text_of(error)
    assert titles(app)[0].startswith("int4 g128")  # the speeds stay


def test_a_model_of_totals_alone_still_gets_the_study(open_page):
    app = open_page("quantisation.py", model="textbook-13b", gpu="a100-textbook", fidelity="textbook")
    assert titles(app)[0].startswith("Nothing can be timed")
    (error,) = app.error
    assert "totals" in text_of(error)
    assert "(0.307 against 0.00646)" in words(app)
