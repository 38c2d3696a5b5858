"""A recorded run of the reference engine: sending requests when each is due, and the requests as the simulator takes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

import numpy as np

from calc.simulation.replay import Replay, replay
from calc.simulation.requests import RequestTable
from probes.engine.engine import Engine


def play(engine: Engine, requests: Iterable[tuple[float, Sequence[int], int]]) -> None:
    """Send (seconds from the start, prompt, answer tokens) when each is due, and run until all are done."""
    begin = engine.clock()

    def feed() -> None:
        for due_s, prompt, count in requests:
            time.sleep(max(0.0, begin + due_s - engine.clock()))
            engine.submit(prompt, count)
        engine.close()

    feeder = threading.Thread(target=feed, name="arrivals")
    feeder.start()
    engine.run()
    feeder.join()


def request_table(engine: Engine) -> RequestTable:
    """The recorded requests as the simulator takes them: lengths as they came out, equal prompt blocks by equal ids."""
    size = engine.rules.block_size
    ids: dict[tuple[int, ...], int] = {}
    flat, counts = [], []
    for request in engine.requests:
        full = len(request.prompt) // size
        flat += [ids.setdefault(request.prompt[: (i + 1) * size], len(ids)) for i in range(full)]
        counts.append(full)
    origin = engine.requests[0].arrival_s
    return RequestTable(
        arrival_s=np.array([request.arrival_s - origin for request in engine.requests]),
        input_tokens=np.array([len(request.prompt) for request in engine.requests]),
        output_tokens=np.array([request.answered for request in engine.requests]),
        prefix_ids=np.array(flat, dtype=np.int64),
        prefix_count=np.array(counts),
        prefix_block=size,
        name="recorded run",
    )


def replayed(engine: Engine, *, compiled: bool = True) -> Replay:
    """The recorded run, played again in the simulator with the seconds of each pass."""
    return replay(
        request_table(engine),
        engine.rules,
        pass_s=[one.end_s - one.begin_s for one in engine.passes],
        recorded=[one.decisions for one in engine.passes],
        compiled=compiled,
    )
