"""Side by side with other planners: the same questions, their answers, ours, the measured truth; writes docs/compare.md.

Each tool runs with its own interpreter in a virtual environment of its own, PEERS/venv-NAME, made by hand:
    python -m venv PEERS/venv-kvfit && PEERS/venv-kvfit/bin/pip install kvfit==0.3.0
    (the same for aiconfigurator==0.12.0, servcalc==0.1.0, ridgepoint==0.1.2, genz-llm==0.0.16, llm-analysis==0.2.2, hf-mem==0.5.6)
Nothing is fetched while it runs. What is not installed, or cannot answer, is listed as such. About ten minutes, most of them
aiconfigurator's.

Usage: python scripts/compare_peers.py --peers PEERS --reference REFERENCE --cases CASES [--points 4] [--out FILE]
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]

from presets import measurements
from scripts.compare_peers_document import GROUPS, document
from scripts.compare_peers_memory import pools, state_counts
from scripts.compare_peers_times import TIME_TOOLS, ask_ridgebeam

TARGET = ROOT / "docs/compare.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--points", type=int, default=4, help="of each group")
    parser.add_argument("--out", type=Path, default=TARGET)
    arguments = parser.parse_args()
    points = chosen_points(arguments.points)
    ours = [ask_ridgebeam(point) for point in points]
    table = {name: [ask(arguments, point) for point in points] for name, ask in TIME_TOOLS.items()}
    arguments.out.write_text(
        document(
            points,
            ours,
            held_out_times(arguments, points),
            table,
            state_counts(arguments),
            pools(arguments),
        ),
        encoding="utf-8",
    )
    print(arguments.out)
    return 0


def group_of(point):
    return point.model, point.accelerator, point.engine


def chosen_points(each: int) -> list[measurements.ServingMeasurement]:
    """Clean rows of the groups, evenly spread over each group's list, so that nobody picks them."""
    rows = [m for m in measurements.serving() if m.use == "clean"]
    points = []
    for group in GROUPS:
        alike = sorted(
            (m for m in rows if group_of(m) == group),
            key=lambda m: (m.layout.tp, m.input_tokens, m.output_tokens, m.concurrency),
        )
        points += [alike[int((i + 0.5) * len(alike) / each)] for i in range(each)]
    return points


def held_out_times(arguments, points):
    """Each point's TPOT by constants that were fitted, from their priors, without any row of the point's group."""
    os.environ["RIDGEBEAM_REFERENCE"] = str(arguments.reference)
    from fit_profiles import link_curves, spec_of
    from fit_serving import Fit, rows_of

    clean = [m for m in measurements.serving() if m.use == "clean"]
    fit = Fit(rows_of(clean, spec_of), link_curves())
    found = {}
    for group in GROUPS:
        out = np.array([group_of(m) == group for m in clean])
        seconds = fit.subset(out).settled(fit.solve(~out, stride=2))
        alike = [m for m, held in zip(clean, out, strict=True) if held]
        found |= {m.row: float(s) for m, s in zip(alike, seconds, strict=True)}
    return [found[point.row] for point in points]


if __name__ == "__main__":
    sys.exit(main())
