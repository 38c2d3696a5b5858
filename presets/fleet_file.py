"""A fleet's table from a CSV file, and the ready example."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from calc.errors import InputError

MAX_BYTES = 1_000_000

EXAMPLE: tuple[dict[str, object], ...] = (
    {"name": "chat", "region": "eu", "model": "meta-llama/Llama-2-13b-hf", "rate_per_s": 20.0, "input_tokens": 512.0, "output_tokens": 256.0, "tpot_s": 0.05},
    {"name": "coding", "region": "eu", "model": "meta-llama/Llama-3.3-70B-Instruct", "rate_per_s": 10.0, "input_tokens": 2000.0, "output_tokens": 300.0, "tpot_s": 0.04},
    {"name": "coding us", "region": "us", "model": "meta-llama/Llama-3.3-70B-Instruct", "rate_per_s": 20.0, "input_tokens": 2000.0, "output_tokens": 300.0, "tpot_s": 0.04},
    {"name": "40 tenants", "region": "us", "model": "meta-llama/Meta-Llama-3.1-8B", "rate_per_s": 50.0, "input_tokens": 800.0, "output_tokens": 200.0, "tpot_s": 0.03, "adapters": 40.0},
)  # fmt: skip
"""Four deployments to start from, one of them 40 LoRA adapters on one base."""


def read_fleet_file(path: Path) -> list[dict[str, object]]:
    """The rows of a CSV file with a header line; raises `InputError` where it is none."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError("fleet file", path.name, f"at most {MAX_BYTES:,} bytes are read")
        return read_fleet_text(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise InputError(
            "fleet file",
            str(path),
            "there is no such file",
            next_step=f"Write one line per deployment under a header such as {','.join(EXAMPLE[0])}.",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("fleet file", str(path), "it must be a readable CSV file") from error


def read_fleet_text(text: str) -> list[dict[str, object]]:
    """The rows of CSV text with a header line."""
    if len(text) > MAX_BYTES:
        raise InputError("fleet table", f"{len(text):,} characters", f"at most {MAX_BYTES:,} are read")
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows: list[dict[str, object]] = []
        for row in reader:
            if None in row or None in row.values():
                raise InputError(
                    f"line {reader.line_num}", row.get(None), "each line has as many cells as the header"
                )
            rows.append(dict(row))
    except csv.Error as error:
        raise InputError("fleet table", str(error), "it must be CSV with a header line") from error
    if not rows:
        raise InputError("fleet table", "no rows", "give a header line and at least one row")
    return rows
