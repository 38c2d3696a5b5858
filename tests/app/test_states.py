"""Where nothing serves, nothing arrives or a target is out of reach, pages say so and show the way out."""

import json
import os

import pytest
from published_run import a100
from reading import text_of, titles

from calc.errors import InputError
from calc.scenario import Scenario
from pages._inputs import answer_for
from probes import store

pytestmark = pytest.mark.app

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
    "num_attention_heads": 32, "num_key_value_heads": 32, "num_hidden_layers": 32, "vocab_size": 32000,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
TOO_LARGE = {"model": "meta-llama/Llama-3.1-405B-Instruct-FP8", "gpu": "rtx-3060-12gb"}


@pytest.mark.parametrize("file", ["size.py", "batch_size.py", "simulate.py"])
def test_a_model_that_fits_nowhere_is_answered_with_the_nearest_changes(open_page, file):
    app = open_page(file, **TOO_LARGE)
    assert titles(app)[0].startswith("Does not work: 382 GiB of weights alone")
    assert not app.error
    assert any(button.key.startswith("nearest-") for button in app.button)


IDEAS = ["paged_kv.py", "scheduler.py", "speculative.py", "roofline.py", "quantisation.py"]


@pytest.mark.parametrize("file", IDEAS)
def test_an_idea_timed_on_cards_that_cannot_hold_the_model_says_so(open_page, file):
    app = open_page(file, **TOO_LARGE)
    assert any(text_of(one).startswith("382 GiB of weights alone do not fit") for one in app.warning)


@pytest.mark.parametrize("tpot_ms", ["50", "0.1"])
def test_a_model_that_fits_is_not_said_to_be_too_large(open_page, tpot_ms):
    assert not open_page("roofline.py", tpot_ms=tpot_ms).warning


def test_compare_says_which_card_cannot_hold_the_model(open_page):
    title = titles(open_page("compare.py", **TOO_LARGE))[0]
    assert title.endswith("GeForce RTX 3060 12GB cannot hold the model.")


def test_a_target_out_of_reach_is_the_batch_pages_title(open_page):
    app = open_page("batch_size.py", tpot_ms="0.1")
    assert "the target is 100 µs" in titles(app)[0]
    assert app.metric  # the curve is shown all the same


def test_without_traffic_nothing_is_simulated_and_nothing_is_priced(open_page):
    app = open_page("simulate.py", rate="0")
    assert not app.error
    assert any("No request arrives" in text_of(one) for one in app.info)
    assert app.button(key="sim-run").disabled
    cost = next(one for one in open_page(rate="0").metric if one.label == "$ per million out")
    assert cost.value == "no output"


def test_a_config_that_was_edited_under_its_name_is_read_anew(tmp_path):
    path = tmp_path / "config.json"
    scenario = Scenario(model=str(path))
    for layers, kib_per_token in ((32, 512), (64, 1024)):  # 32: Llama 2 7B
        path.write_text(json.dumps(LLAMA | {"num_hidden_layers": layers}))
        os.utime(path, (layers, layers))  # whatever the file system's clock resolves
        assert answer_for(scenario).memory.kv_bytes_per_token == kib_per_token * 1024
        assert answer_for(scenario) is answer_for(scenario)


def test_a_run_that_was_imported_again_under_its_id_is_read_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    scenario = Scenario(profile=a100()["id"], tp=1)
    prefill_s = []
    for rate in (
        270e12,
        135e12,
    ):  # matrix products at half the rate take twice as long, and they are most of a prompt
        store.import_run(json.dumps(a100(rate=rate)))
        prefill_s.append(answer_for(scenario).prefill.prefill_s.best)
        assert answer_for(scenario) is answer_for(scenario)
        store.delete(scenario.profile)
        with pytest.raises(InputError, match="no such measured run"):
            answer_for(scenario)
    assert prefill_s[1] > 1.5 * prefill_s[0]
