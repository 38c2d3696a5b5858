"""30 visitors who move sliders for five minutes: reruns, memory and exceptions of the app, without their browsers.

Each visitor opens one of the pages that are asked most, and changes a number of the sidebar every one to three seconds. Targets on two cores: p95 of a rerun under 1.5 s, memory flat, no exception.
RIDGEBEAM_VISITORS and RIDGEBEAM_VISIT_S change how many and how long; RIDGEBEAM_COPIES shares them out among several
copies of the app, one for each core, as docs/hosting.md has it.
"""

import asyncio
import os
import random
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from bench._server import served
from bench._visitor import visiting

VISITORS = int(os.environ.get("RIDGEBEAM_VISITORS", "30"))
COPIES = int(os.environ.get("RIDGEBEAM_COPIES", "1"))
VISIT_S = float(os.environ.get("RIDGEBEAM_VISIT_S", "300"))
PAGES = ("", "memory", "batch-size", "queueing", "compare", "roofline", "speculative")
THINK_S = (1.0, 3.0)
SETTLED = 0.4  # memory is compared from here on: pages, catalogues and caches are loaded by then


def rows():
    with ExitStack() as running:
        servers = [running.enter_context(served()) for _ in range(COPIES)]
        seen = asyncio.run(_visits(servers))
    reruns = np.array(seen.reruns_s)
    yield (
        f"reruns of {VISITORS} visitors in {VISIT_S:.0f} s, copies of the app: {COPIES}",
        len(reruns),
        "reruns",
    )
    for share in (50, 95, 99):
        yield f"rerun, p{share}", float(np.percentile(reruns, share)), "s"
    yield "exceptions shown or connections lost", seen.faults, "faults"
    settled = [megabytes for at, megabytes in seen.memory if at >= SETTLED]
    yield "memory of all copies once settled", settled[0], "MB"
    yield "memory of all copies at the end", settled[-1], "MB"


class _Seen:
    def __init__(self):
        self.reruns_s, self.memory, self.faults = [], [], 0


async def _visits(servers):
    seen = _Seen()
    end = time.monotonic() + VISIT_S
    watch = asyncio.create_task(_watch([server.pid for server in servers], seen, end))
    visits = [
        _visit(servers[number % len(servers)].url, random.Random(number), seen, end)
        for number in range(VISITORS)
    ]
    for outcome in await asyncio.gather(*visits, return_exceptions=True):
        if isinstance(outcome, BaseException):
            seen.faults += 1
    await watch
    return seen


async def _visit(url, chance, seen, end):
    """One visitor: a page, then one changed number after another."""
    await asyncio.sleep(chance.uniform(0, 10))
    async with visiting(url, chance.choice(PAGES)) as visitor:
        while time.monotonic() < end:
            await asyncio.sleep(chance.uniform(*THINK_S))
            begun = time.monotonic()
            await visitor.run(round(chance.uniform(1, 50), 1))
            seen.reruns_s.append(time.monotonic() - begun)
        seen.faults += visitor.faults


async def _watch(pids, seen, end):
    """Resident memory of the servers, by share of the visit gone."""
    while (left := end - time.monotonic()) > 0:
        seen.memory.append((1 - left / VISIT_S, sum(map(_resident_mb, pids))))
        await asyncio.sleep(VISIT_S / 100)


def _resident_mb(pid):
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1000
