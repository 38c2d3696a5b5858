"""The section "Whole path" of the page This GPU: empty before it has run, then tables beside predictions."""

import pytest
from published_run import a100
from reading import text_of

from probes import store

pytestmark = pytest.mark.app

CONFIG = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 4096,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 128,
    "intermediate_size": 384,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
GIVEN = {"config": CONFIG, "dtype": "bf16", "source": "Qwen/Qwen3-0.6B"}


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("RIDGEBEAM_ALLOW_PROBES", "1")


def words(app):
    return " ".join(text_of(block) for block in app.markdown)


def case(name, value, unit, extra, **parameters):
    return {
        "probe": "whole_path",
        "case": name,
        "value": value,
        "unit": unit,
        "timing": None,
        "tags": [],
        "extra": extra,
        "parameters": {**GIVEN, **parameters},
    }


def test_nothing_is_shown_before_it_has_run(open_page):
    store.save(a100())
    app = open_page("this_gpu.py")
    assert "Nothing is shown before it has been measured" in words(app)
    assert any(button.label == "Measure the whole path" for button in app.button)
    assert not any("KV cache" in str(frame.value) for frame in app.dataframe)


def test_measured_stands_beside_predicted(open_page):
    run = a100()
    run["cases"] += [
        case("without a cache", 40.0, "s", {"prompt": 32}, tokens=256),
        case("with a cache", 2.5, "s", {"prompt": 32}, tokens=256),
    ]
    store.save(run)
    app = open_page("this_gpu.py")
    assert "A cache makes 256 tokens 16x as fast (2.5 s instead of 40 s)." in words(app)
    table = next(frame.value for frame in app.dataframe if "measured / predicted" in frame.value.columns)
    assert table["measured"].tolist() == ["40 s", "2.5 s"]
    assert all(table["predicted"])
    assert any(button.label == "Measure the whole path again" for button in app.button)
