"""What the documents promise: examples run, files exist, verbs are known."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
NAMED = re.compile(r"`((?:calc|pages|presets|probes|commands|scripts|bench|tests|docs)/[\w/.-]*)`")
COMMAND = re.compile(r"^(?:\.venv/bin/)?ridgebeam (\w[\w-]*)", re.MULTILINE)


def test_the_examples_of_the_python_page_run():
    found = doctest.testfile(
        str(ROOT / "docs/python.md"),
        module_relative=False,
        optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL,
    )
    assert found.attempted > 25
    assert found.failed == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_every_link_leads_to_a_file(document):
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_every_file_that_is_named_exists(document):
    for name in NAMED.findall(document.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_every_verb_that_is_written_down_exists(document, capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    known = capsys.readouterr().out
    for verb in set(COMMAND.findall(document.read_text(encoding="utf-8"))):
        assert re.search(rf"\b{verb}\b", known), verb


def test_the_verb_is_found_from_any_folder_by_the_module_alone(tmp_path):
    """As the console script of an editable install finds it: `cli` by its file, nothing else of the checkout."""
    code = f"""
import importlib.util, sys
sys.path[:] = [place for place in sys.path if place not in ("", {str(ROOT)!r})]
spec = importlib.util.spec_from_file_location("cli", {str(ROOT / "cli.py")!r})
cli = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cli)
sys.exit(cli.main(["model", "Qwen/Qwen3-0.6B"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
