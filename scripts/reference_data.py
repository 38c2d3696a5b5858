"""Where scripts find the data that nothing in the package holds: published logs and configs, and the worked cases."""

import argparse
import os
from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / "shared"


def folders(about: str) -> tuple[Path, Path]:
    """The folders of cases and of reference data: by flag, by variable, else beside the checkout."""
    parser = argparse.ArgumentParser(description=about)
    for name in ("cases", "reference"):
        default = os.environ.get(f"RIDGEBEAM_{name.upper()}", SHARED / name)
        parser.add_argument(f"--{name}", type=Path, default=default)
    arguments = parser.parse_args()
    return Path(arguments.cases), Path(arguments.reference)
