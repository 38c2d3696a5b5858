"""A visitor without a browser: opens a page over the page's own websocket, keeps what a browser would hold, moves the rate."""

import asyncio
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import connect

LONGEST_RUN_S = 120


@asynccontextmanager
async def visiting(url, page):
    """A visitor on a page, given by its address ("" for the first), who has seen it drawn once."""
    address = f"{url.replace('http', 'ws', 1)}/_stcore/stream"
    async with connect(address, origin=url, max_size=None, open_timeout=60) as socket:
        visitor = Visitor(socket, page)
        await visitor.run(1.0)
        if visitor.rate is None:
            raise RuntimeError(f"the page {page!r} has no box for the rate")
        yield visitor


class Visitor:
    """`rate`: the id of the sidebar's box; `held`: each box's value by its id; `faults`: tracebacks that were shown."""

    def __init__(self, socket, page):
        self.socket, self.page = socket, page
        self.rate, self.held, self.faults = None, {}, 0

    async def run(self, rate):
        """Ask for one run of the script at another rate, and read all of it."""
        if self.rate is not None:
            self.held[self.rate] = WidgetState(id=self.rate, double_value=rate)
        message = BackMsg()
        asked = message.rerun_script
        asked.query_string, asked.page_name = urlencode({"rate": rate}), self.page
        asked.widget_states.widgets.extend(self.held.values())
        await self.socket.send(message.SerializeToString())
        while True:
            answer = ForwardMsg()
            answer.ParseFromString(await asyncio.wait_for(self.socket.recv(), LONGEST_RUN_S))
            if answer.WhichOneof("type") == "script_finished":
                return
            if answer.WhichOneof("type") == "delta" and answer.delta.WhichOneof("type") == "new_element":
                self._take(answer.delta.new_element)

    def _take(self, element):
        kind = element.WhichOneof("type")
        self.faults += kind == "exception"
        state = _shown(kind, getattr(element, kind))
        if state is not None and state.id not in self.held:
            self.held[state.id] = state
            if state.id.endswith("-rate"):
                self.rate = state.id


def _shown(kind, box):
    """What a browser sends back of a box that nobody touched."""
    if kind == "number_input" and box.HasField("default"):
        return WidgetState(id=box.id, double_value=box.default)
    if kind == "text_input":
        return WidgetState(id=box.id, string_value=box.default)
    if kind == "checkbox":
        return WidgetState(id=box.id, bool_value=box.default)
    if kind == "selectbox" and box.HasField("default"):
        return WidgetState(id=box.id, string_value=box.options[box.default])
    return None
