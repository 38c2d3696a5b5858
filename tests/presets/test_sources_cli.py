"""Sources at the command line: what cannot be read is a message and an exit code, never a traceback."""

import json

import pytest
from test_config_text import POEM, QWEN3
from test_hub_tokens import TOKEN

import cli


def run(capsys, *words):
    code = cli.main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POEM, "it must be JSON"),
        (json.dumps(QWEN3 | {"num_attention_heads": -16}), "num_attention_heads: got -16"),
        ('{"num_hidden_layers": 1e9}', "num_hidden_layers: got 1000000000.0"),
        ('{"model_type": "vit", "hidden_size": 768, "image_size": 224}', "model_type: got 'vit'"),
        ('{"_class_name": "FluxTransformer2DModel"}', "FluxTransformer2DModel"),
        ("[]", "a JSON object"),
        ("", "nothing"),
    ],
)
def test_a_file_that_is_no_usable_config_exits_with_2(tmp_path, capsys, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    code, out, err = run(capsys, "model", str(path))
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    code, out, err = run(capsys, "model", str(path), "--json")
    assert code == 2
    assert message in json.loads(out)["error"]["message"]


@pytest.mark.hub
def test_a_hub_model_answers_and_a_fault_exits_with_4(hub_server, capsys):
    hub_server.add("me/model").put("config.json", QWEN3)
    hub_server.add("me/gated", gated=True, tokens=(TOKEN,)).put("config.json", QWEN3)
    code, out, _ = run(capsys, "model", f"{hub_server.url}/me/model/tree/main", "--json")
    assert (code, json.loads(out)["params"]["total"]) == (0, 596_049_920)
    code, out, err = run(capsys, "model", "me/gated")
    assert (code, out) == (4, "")
    assert "gated" in err
    assert "paste its config.json" in err
    assert run(capsys, "model", "me/none", "--json")[0] == 4
