"""Processor time that one moved number of the sidebar costs the server, page by page, other work on the machine or not.

It sets how many visitors one copy of the app serves: see docs/hosting.md. Reads Linux's account of the server's process.
"""

import asyncio
import os
import random
import statistics
from pathlib import Path

from bench._server import served
from bench._visitor import visiting
from bench.visitors import PAGES as VISITED
from pages._registry import PAGES

WARM, MOVES = 5, 25
SETTLE_S = 0.1  # after a run the server still sends and counts
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def rows():
    found = {}
    with served() as server:
        for entry in PAGES:
            page = "" if entry is PAGES[0] else entry.url_path
            found[page] = asyncio.run(_cost_s(server, page))
            yield f"{entry.title}, a rerun", 1e3 * found[page], "ms"
    visited = statistics.mean(found[page] for page in VISITED)
    yield "mean of the pages of `python -m bench visitors`", 1e3 * visited, "ms"
    yield "mean of all pages", 1e3 * statistics.mean(found.values()), "ms"


async def _cost_s(server, page):
    chance = random.Random(page)
    async with visiting(server.url, page) as visitor:
        for _ in range(WARM):
            await visitor.run(_rate(chance))
        await asyncio.sleep(SETTLE_S)
        before = _used_s(server.pid)
        for _ in range(MOVES):
            await visitor.run(_rate(chance))
        await asyncio.sleep(SETTLE_S)
        return (_used_s(server.pid) - before) / MOVES


def _rate(chance):
    return round(chance.uniform(1, 50), 1)


def _used_s(pid):
    """Processor time of a process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
