"""The README's commands as they stand there: each is one that the parser takes, and the file that one reads is there."""

import io
import json
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import cli
from presets.fleet_file import EXAMPLE, read_fleet_file

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    if line.startswith(".venv/bin/ridgebeam ")
]


def test_there_are_commands():
    assert len(COMMANDS) >= 10


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_every_command_is_taken(words):
    assert cli._parser().parse_args(words).verb == words[0]


def test_the_fleet_of_the_readme_runs_from_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)
    (words,) = (words for words in COMMANDS if words[0] == "fleet")
    shown = io.StringIO()
    with redirect_stdout(shown):
        assert cli.main([*words, "--json"]) == 0
    assert json.loads(shown.getvalue())


def test_the_example_file_is_the_pages_example():
    rows = read_fleet_file(ROOT / "docs" / "deployments.csv")
    for row, wanted in zip(rows, EXAMPLE, strict=True):
        for name, value in wanted.items():
            assert type(value)(row[name]) == value
