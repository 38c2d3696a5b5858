"""30 visitors who move sliders for five minutes: reruns, memory and exceptions of the app, without their browsers.

Each visitor speaks the page's own websocket protocol, opens one of the pages that are asked most, and changes a number of
the sidebar every one to three seconds. Targets on two cores: p95 of a rerun under 1.5 s, memory flat, no exception.
RIDGEBEAM_VISITORS and RIDGEBEAM_VISIT_S change how many and how long; RIDGEBEAM_COPIES shares them out among several
copies of the app, one for each core, as docs/hosting.md has it.
"""

import asyncio
import os
import random
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import connect

from bench._server import served

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
    page = chance.choice(PAGES)
    async with connect(
        f"{url.replace('http', 'ws', 1)}/_stcore/stream", origin=url, max_size=None, open_timeout=60
    ) as socket:
        rate = await _rerun(socket, page, None, 1.0, seen)
        if rate is None:
            raise RuntimeError(f"the page {page!r} has no box for the rate")
        while time.monotonic() < end:
            await asyncio.sleep(chance.uniform(*THINK_S))
            begun = time.monotonic()
            await _rerun(socket, page, rate, round(chance.uniform(1, 50), 1), seen)
            seen.reruns_s.append(time.monotonic() - begun)


async def _rerun(socket, page, widget, value, seen):
    """Ask for one run of the script and read all of it; the id of the sidebar's rate box."""
    message = BackMsg()
    message.rerun_script.query_string = urlencode({"rate": value})
    message.rerun_script.page_name = page
    if widget is not None:
        state = message.rerun_script.widget_states.widgets.add()
        state.id, state.double_value = widget, value
    await socket.send(message.SerializeToString())
    while True:
        answer = ForwardMsg()
        answer.ParseFromString(await asyncio.wait_for(socket.recv(), 120))
        kind = answer.WhichOneof("type")
        if kind == "script_finished":
            return widget
        if kind == "delta" and answer.delta.WhichOneof("type") == "new_element":
            element = answer.delta.new_element
            seen.faults += element.WhichOneof("type") == "exception"
            if element.WhichOneof("type") == "number_input" and element.number_input.id.endswith("-rate"):
                widget = element.number_input.id


async def _watch(pids, seen, end):
    """Resident memory of the servers, by share of the visit gone."""
    while (left := end - time.monotonic()) > 0:
        seen.memory.append((1 - left / VISIT_S, sum(map(_resident_mb, pids))))
        await asyncio.sleep(VISIT_S / 100)


def _resident_mb(pid):
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1000
