"""docs/compare.md says what its script finds: its own column agrees with what the product predicts now."""

import re
from pathlib import Path

from presets import accuracy, measurements

DOCUMENT = Path(__file__).parents[2] / "docs/compare.md"
ROW = re.compile(
    r"^\| (?P<model>\S+?)(?: fp8)?, (?P<gpus>\d+) x (?P<gpu>\S+), (?P<engine>\S+) \| (?P<in>[\d.]+)/(?P<out>[\d.]+), (?P<users>\d+) \| (?P<true>[\d.]+) ms \| (?P<ours>[\d.]+) ms"
)


def test_measured_and_own_columns_are_current():
    """Nothing else is checked here: the other columns need the other tools (scripts/compare_peers.py asks them again)."""
    predicted = {c.id: c.best for c in accuracy.comparisons()}
    found = [match for line in DOCUMENT.read_text().splitlines() if (match := ROW.match(line))]
    assert len(found) >= 6
    for match in found:
        alike = [
            m
            for m in measurements.serving()
            if (m.model, m.accelerator, m.engine) == (match["model"], match["gpu"], match["engine"])
            and m.layout.gpus_per_replica == int(match["gpus"])
            and m.concurrency == int(match["users"])
            and f"{m.input_tokens:g}/{m.output_tokens:g}" == f"{match['in']}/{match['out']}"
            and f"{m.tpot_s * 1e3:.1f}" == match["true"]
        ]
        assert alike, match[0]
        ours = [predicted[f"serving-{m.row}-tpot"] * 1e3 for m in alike]
        assert min(abs(each / float(match["ours"]) - 1) for each in ours) < 0.05, match[0]
