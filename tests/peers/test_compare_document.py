"""docs/compare.md says what its script finds: its own column agrees with what the product predicts now, its sums with its rows."""

import re
import statistics
from pathlib import Path

import pytest

from presets import accuracy, measurements

DOCUMENT = (Path(__file__).parents[2] / "docs/compare.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (?P<model>\S+?)(?: (?P<form>fp8\S*))?, (?P<gpus>\d+) x (?P<gpu>\S+), (?P<engine>[a-z-]+)(?: \S+)? "
    r"\| (?P<in>[\d.]+)/(?P<out>[\d.]+), (?P<users>\d+) \| (?P<true>[\d.]+) ms \| (?P<ours>[\d.]+) ms"
)
CELL = re.compile(r"([\d.]+) ms \(")


def point_rows():
    return [line for line in DOCUMENT.splitlines() if ROW.match(line)]


def test_measured_and_own_columns_are_current():
    """Nothing else is checked here: the other columns need the other tools (scripts/compare_peers.py asks them again)."""
    predicted = {c.id: c.best for c in accuracy.comparisons()}
    found = [ROW.match(line) for line in point_rows()]
    assert len(found) >= 18
    for match in found:
        alike = [
            m
            for m in measurements.serving()
            if (m.model, m.accelerator, m.engine) == (match["model"], match["gpu"], match["engine"])
            and m.quantization == match["form"]
            and m.layout.gpus_per_replica == int(match["gpus"])
            and m.concurrency == int(match["users"])
            and f"{m.input_tokens:g}/{m.output_tokens:g}" == f"{match['in']}/{match['out']}"
            and f"{m.tpot_s * 1e3:.1f}" == match["true"]
        ]
        assert alike, match[0]
        ours = [predicted[f"serving-{m.row}-tpot"] * 1e3 for m in alike]
        assert min(abs(each / float(match["ours"]) - 1) for each in ours) < 0.05, match[0]


def test_every_median_and_largest_error_follows_from_the_rows():
    """From the printed tenths of a millisecond, so to about a point."""
    header = next(line for line in DOCUMENT.splitlines() if line.startswith("| model, card, engine |"))
    names = [name.strip() for name in header.split("|")[4:-1]]
    columns = {name: [] for name in names}
    for line in point_rows():
        true = float(ROW.match(line)["true"])
        for name, text in zip(names, line.split("|")[4:-1], strict=True):
            if said := CELL.search(text):
                columns[name].append(abs(float(said[1]) / true - 1) * 100)
    summary = dict(
        re.findall(r"^\| ([^|]+?) \| \d+ of \d+ \| (.+?%) \| [\d.]+% \| \d+ of", DOCUMENT, re.MULTILINE)
    )
    assert set(summary) == set(names)
    for line in re.finditer(
        r"^\| ([^|]+?) \| (\d+) of \d+ \| ([\d.]+)% \| ([\d.]+)% \| \d+ of", DOCUMENT, re.MULTILINE
    ):
        errors = columns[line[1]]
        assert len(errors) == int(line[2])
        assert statistics.median(errors) == pytest.approx(float(line[3]), abs=1.2)
        assert max(errors) == pytest.approx(float(line[4]), abs=1.2)
