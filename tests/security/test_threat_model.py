"""The document names a test for each threat; each of them exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/security.md").read_text(encoding="utf-8"))


def test_every_row_of_the_table_names_a_test():
    table = [
        line
        for line in (ROOT / "docs/security.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    assert len(NAMED) == len(table) - 1 > 20  # the head of the table names none


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_each_named_test_exists(file, name):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
