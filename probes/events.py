"""What a worker says, one JSON object a line, checked when it is read.

    facts     {device, software}                       what was opened
    plan      {probe, cases: [names]}                  before the first case of a probe
    start     {probe, case}
    result    {probe, case, ...}                       one measured case, see `probes.harness.Measurement`
    problem   {probe, case, kind, message, next_step}  a case that gave no number
    done      {}                                       the group ended by itself

Anything else on the worker's standard output (a library that prints) is kept apart and never taken for a result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from calc.json_text import NOT_JSON, parse_json

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "facts": ("software",),
    "plan": ("probe", "cases"),
    "start": ("probe", "case"),
    "result": ("probe", "case", "value", "unit"),
    "again": ("probe", "case", "value", "unit"),
    "problem": ("probe", "case", "kind", "message"),
    "done": (),
    "phase": ("group",),
    "state": (),
    "end": ("status",),
}
LONGEST_LINE = 4_000_000


def emit(event: str, **content: Any) -> None:
    """Print one event and flush it, so that nothing is lost when the process dies in the next case."""
    sys.stdout.write(json.dumps({"event": event, **content}) + "\n")
    sys.stdout.flush()


def parse_line(line: str) -> dict[str, Any] | None:
    """The event of a line, or None for anything that is not a complete, known event."""
    if len(line) > LONGEST_LINE or not line.startswith("{"):
        return None
    try:
        content = parse_json(line, finite=True)
    except NOT_JSON:
        return None
    if not isinstance(content, dict):
        return None
    required = REQUIRED.get(str(content.get("event")))
    if required is None or any(name not in content for name in required):
        return None
    return content
