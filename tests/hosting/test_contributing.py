"""The recipes of CONTRIBUTING.md, applied to a copy of the checkout and used there: each is one file and one line."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("calc", "presets", "probes", "pages", "commands", ".streamlit", "cli.py", "app.py")
BLOCK = re.compile(r"```\w+ (file|into)=(\S+)(?: (before|after)=\"([^\n]*)\")?\n(.*?)```", re.DOTALL)
LLAMA = {
    "model_type": "plainest",
    "architectures": ["PlainestForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
PAGE = """
from streamlit.testing.v1 import AppTest
app = AppTest.from_file("pages/_frame.py", default_timeout=240).switch_page("heaviest.py").run()
assert not app.exception
print(app.title[0].value)
"""
PROBE = """
from importlib import import_module
from probes.harness import Bench
from probes.registry import PROBES
from probes.torch_device import TorchDevice
(probe,) = [one for one in PROBES if one.name == "transpose"]
(case,) = import_module(probe.module).cases(Bench(device=TorchDevice("cpu")))
print(case.run().value)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    copy = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    recipes = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(recipes) == 10
    for kind, file, where, anchor, text in recipes:
        target = copy / file
        if kind == "file":
            assert not target.exists()
            target.write_text(text, encoding="utf-8")
            continue
        before = target.read_text(encoding="utf-8").splitlines(keepends=True)
        starts = anchor.replace('\\"', '"')
        (at,) = [number for number, line in enumerate(before) if line.startswith(starts)]
        at += where == "after"
        target.write_text("".join([*before[:at], text, *before[at:]]), encoding="utf-8")
    return copy


def python(checkout, code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=checkout, capture_output=True, check=False, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def ridgebeam(checkout, *arguments):
    return json.loads(python(checkout, "import sys, cli; sys.exit(cli.main())", *arguments, "--json"))


def test_an_architecture(checkout, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    shown = ridgebeam(checkout, "model", str(config))
    attention = 4 * 64 * 64 + 3 * 64  # q, k, v and o, with biases on the first three
    layer = attention + 3 * 64 * 128 + 2 * 64
    assert shown["params"]["total"] == 2 * layer + 2 * 100 * 64 + 64
    assert shown["architecture"] == "PlainestForCausalLM"


def test_an_engine_version_and_an_accelerator(checkout):
    shown = ridgebeam(
        checkout, "fit", "Qwen/Qwen3-0.6B", "--gpu", "example-card", "--engine-version", "0.34.0"
    )
    before = ridgebeam(
        checkout, "fit", "Qwen/Qwen3-0.6B", "--gpu", "example-card", "--engine-version", "0.33.0"
    )
    assert shown["fits"]
    gained = shown["per_gpu"]["kv_bytes"] - before["per_gpu"]["kv_bytes"]
    assert gained == pytest.approx(0.01 * shown["per_gpu"]["total_bytes"], rel=0.02)  # 0.93 over 0.92


@pytest.mark.torch
def test_a_probe(checkout):
    assert 0.01e9 < float(python(checkout, PROBE)) < 10e12


@pytest.mark.app
def test_a_page(checkout):
    assert python(checkout, PAGE).replace("\\", "") == "Most of meta-llama/Llama-2-13b-hf is mlp."
