"""A run as files: one CSV line a request, and the schedule for chrome://tracing or Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from calc.simulation.requests import Floats
from calc.simulation.results import Ints, SimulationResult
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


def _slots(replica: Ints, start_s: Floats, end_s: Floats) -> list[int]:
    """A row for each stay such that no two in a row of a replica overlap in time: the Gantt chart's slot."""
    free: dict[int, list[float]] = {}
    rows = [0] * len(replica)
    for i in sorted(range(len(replica)), key=lambda i: float(start_s[i])):
        lanes = free.setdefault(int(replica[i]), [])
        for place, until in enumerate(lanes):
            if until <= start_s[i]:
                lanes[place], rows[i] = float(end_s[i]), place
                break
        else:
            rows[i] = len(lanes)
            lanes.append(float(end_s[i]))
    return rows


def chrome_trace(result: SimulationResult) -> dict[str, Any]:
    """Trace events: per request its prefill and decode on a slot of its replica; per logged pass its load as counters.

    Times are in microseconds, as the format has it. A preempted request's stay is drawn as one span. Where the prompt was
    computed in a pool of its own, it stands there with the transfer behind it.
    """
    events: list[dict[str, Any]] = []
    apart = result.prefill_replica >= 0
    count = len(result)
    slots = _slots(
        np.concatenate([result.replica, result.prefill_replica[apart]]),
        np.concatenate([np.where(apart, result.landed_s, result.scheduled_s), result.scheduled_s[apart]]),
        np.concatenate([result.last_s, result.landed_s[apart]]),
    )
    others = dict(zip(np.flatnonzero(apart).tolist(), slots[count:], strict=True))
    for i, slot in enumerate(slots[:count]):
        where = {"pid": int(result.replica[i]), "tid": slot, "ph": "X"}
        there = {"pid": int(result.prefill_replica[i]), "tid": others[i], "ph": "X"} if apart[i] else where
        told = {
            "input_tokens": int(result.input_tokens[i]),
            "output_tokens": int(result.output_tokens[i]),
            "waited_s": float(result.scheduled_s[i] - result.arrival_s[i]),
            "preemptions": int(result.preempted[i]),
        }
        decodes_s = result.landed_s[i] if apart[i] else result.first_s[i]
        spans = [
            (there, "prefill", float(result.scheduled_s[i]), float(result.first_s[i])),
            (where, "decode", float(decodes_s), float(result.last_s[i])),
        ]
        if apart[i]:
            spans.append((there, "transfer", float(result.sent_s[i]), float(result.landed_s[i])))
        events.extend(
            place
            | {"name": f"{name} {i}", "cat": name, "ts": start / US, "dur": (end - start) / US, "args": told}
            for place, name, start, end in spans
            if end > start
        )
    for one in result.log:
        load = {
            "running": one.running, "waiting": one.waiting, "blocks": one.used_blocks,
            "prefill tokens": one.prefill_tokens, "decoding": one.decoding,
        }  # fmt: skip
        for counter, value in load.items():
            events.append(
                {
                    "name": counter,
                    "ph": "C",
                    "pid": one.replica,
                    "ts": one.start_s / US,
                    "args": {counter: value},
                }
            )
    events.extend(
        {"name": "process_name", "ph": "M", "pid": replica, "args": {"name": f"replica {replica}"}}
        for replica in range(result.replicas)
    )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
