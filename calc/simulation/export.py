"""A run as files: one CSV line a request, and the schedule for chrome://tracing or Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from calc.simulation.results import SimulationResult
from calc.units import US

CSV_COLUMNS = (
    "request", "replica", "arrival_s", "scheduled_s", "first_token_s", "last_token_s", "input_tokens",
    "output_tokens", "cached_tokens", "preemptions", "ttft_s", "tpot_s", "e2e_s",
)  # fmt: skip


def request_lines(result: SimulationResult) -> Iterator[str]:
    """The per-request table as CSV lines, header first; tpot_s is empty where there is one token."""
    yield ",".join(CSV_COLUMNS) + "\n"
    tpot = result.tpot_s
    for i in range(len(result)):
        cells = (
            i, int(result.replica[i]), float(result.arrival_s[i]), float(result.scheduled_s[i]),
            float(result.first_s[i]), float(result.last_s[i]), int(result.input_tokens[i]),
            int(result.output_tokens[i]), int(result.cached_tokens[i]), int(result.preempted[i]),
            float(result.ttft_s[i]), "" if result.output_tokens[i] == 1 else float(tpot[i]), float(result.e2e_s[i]),
        )  # fmt: skip
        yield ",".join(map(str, cells)) + "\n"


def _slots(result: SimulationResult) -> list[int]:
    """A row for each request such that no two in a row overlap in time: the Gantt chart's slot."""
    free: dict[int, list[tuple[float, int]]] = {}
    rows = [0] * len(result)
    for i in sorted(range(len(result)), key=lambda i: float(result.scheduled_s[i])):
        lanes = free.setdefault(int(result.replica[i]), [])
        start = float(result.scheduled_s[i])
        for place, (until, _) in enumerate(lanes):
            if until <= start:
                lanes[place] = (float(result.last_s[i]), place)
                rows[i] = place
                break
        else:
            rows[i] = len(lanes)
            lanes.append((float(result.last_s[i]), len(lanes)))
    return rows


def chrome_trace(result: SimulationResult) -> dict[str, Any]:
    """Trace events: per request its prefill and decode on a slot of its replica; per logged pass its load as counters.

    Times are in microseconds, as the format has it. A preempted request's stay is drawn as one span.
    """
    events: list[dict[str, Any]] = []
    for i, slot in enumerate(_slots(result)):
        where = {"pid": int(result.replica[i]), "tid": slot, "ph": "X"}
        told = {
            "input_tokens": int(result.input_tokens[i]),
            "output_tokens": int(result.output_tokens[i]),
            "waited_s": float(result.scheduled_s[i] - result.arrival_s[i]),
            "preemptions": int(result.preempted[i]),
        }
        spans = (
            ("prefill", float(result.scheduled_s[i]), float(result.first_s[i])),
            ("decode", float(result.first_s[i]), float(result.last_s[i])),
        )
        events.extend(
            where
            | {"name": f"{name} {i}", "cat": name, "ts": start / US, "dur": (end - start) / US, "args": told}
            for name, start, end in spans
            if end > start
        )
    for one in result.log:
        load = {
            "running": one.running, "waiting": one.waiting, "blocks": one.used_blocks,
            "prefill tokens": one.prefill_tokens, "decoding": one.decoding,
        }  # fmt: skip
        for name, value in load.items():
            events.append(
                {"name": name, "ph": "C", "pid": one.replica, "ts": one.start_s / US, "args": {name: value}}
            )
    events.extend(
        {"name": "process_name", "ph": "M", "pid": replica, "args": {"name": f"replica {replica}"}}
        for replica in range(result.replicas)
    )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
