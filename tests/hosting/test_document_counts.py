"""Counts that documents state are those of the catalogue, the prices, the families and the pages of today."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from calc.accelerator import Confirmation
from calc.architectures import known_model_types
from calc.provenance import Provenance
from pages._registry import PAGES
from presets import accelerators
from presets.gguf_families import FAMILIES

ROOT = Path(__file__).parents[2]


def real_parts():
    made_up = set(accelerators.made_up_ids())
    return [part for part in accelerators.load_all() if part.id not in made_up]


def confirmed(level):
    return Counter(part.confirmation for part in accelerators.load_all())[level]


def prices():
    readings = tomllib.loads((ROOT / "presets/price_snapshot.toml").read_text(encoding="utf-8"))["reading"]
    return [price for reading in readings for price in reading["prices"]]


def assumed_rates():
    """Parts whose 16-bit rate is assumed."""
    rates = [[part.rates.get(name) for name in ("bf16", "fp16")] for part in real_parts()]
    return sum(
        any(r is not None for r in both)
        and all(r is None or r.provenance is Provenance.ASSUMED for r in both)
        for both in rates
    )


STATED = [
    ("docs/accelerators.md", r"holds (\d+) real parts", lambda: len(real_parts())),
    ("docs/accelerators.md", r"\| vendor text read \| (\d+)", lambda: confirmed(Confirmation.VENDOR)),
    ("docs/accelerators.md", r"\| recalled \| (\d+)", lambda: confirmed(Confirmation.RECALLED)),
    ("docs/accelerators.md", r"(\d+) parts have no dense 16-bit rate", assumed_rates),
    ("docs/accelerators.md", r"holds (\d+) prices", lambda: len(prices())),
    ("docs/accelerators.md", r"prices of (\d+) parts", lambda: len({price["gpu"] for price in prices()})),
    ("docs/accelerators.md", r"from (\d+) clouds", lambda: len({price["cloud"] for price in prices()})),
    ("docs/sources.md", r"(\d+) architectures are mapped", lambda: len(FAMILIES)),
]


@pytest.mark.parametrize(("document", "pattern", "count"), STATED, ids=[pattern for _, pattern, _ in STATED])
def test_a_count_that_is_written_down_is_true(document, pattern, count):
    found = re.search(pattern, (ROOT / document).read_text(encoding="utf-8"))
    assert found, pattern
    assert int(found[1]) == count()


def test_the_changelog_promises_no_more_model_types_than_there_are():
    found = re.search(r"for over (\d+) model types", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert int(found[1]) < len(known_model_types())


def test_the_tour_shows_every_page_in_its_order():
    text = (ROOT / "docs/tour.md").read_text(encoding="utf-8")
    shown = re.findall(r"^### (.+)$", text.split("## Light, dark, phone")[0], re.MULTILINE)
    assert shown == [entry.title for entry in PAGES]
