"""Writes presets/measurements/engine_memory.json: predicted against logged memory of every public start-up log.

The tables of docs/accuracy.md that stand between two marks are written from it.

python scripts/write_engine_memory.py [--cases DIR] [--reference DIR]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from presets.engine_log_table import table
from presets.engine_logs import read_logs
from presets.engine_memory import FILE
from presets.engine_memory_report import with_report
from scripts.reference_data import folders

DOCUMENT = ROOT / "docs/accuracy.md"


def main() -> None:
    cases, reference = folders(__doc__)
    content = table(read_logs(cases), reference / "configs")
    about = (
        "Written by scripts/write_engine_memory.py. Facts of public start-up logs with their source (empty: quoted from a page "
        "that is not public any more), and what the ledgers predict. Bytes, tokens, blocks, sequences."
    )
    lines = [f'{{"about": {json.dumps(about)}']
    for name in ("rows", "unused", "starts"):
        entries = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in content[name])
        lines.append(f'"{name}": [\n{entries}\n]')
    FILE.write_text(",\n".join(lines) + "}\n", encoding="utf-8")
    DOCUMENT.write_text(with_report(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    print(
        f"{FILE.relative_to(ROOT)}: {len(content['rows'])} comparisons, {len(content['unused'])} rows not used"
    )


if __name__ == "__main__":
    main()
