"""A visitor of the running app without a browser: the page's own websocket protocol, and its uploads."""

import http.client
import time
from contextlib import contextmanager

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

RUN_S = 120


class Visitor:
    """One session. `elements`: what the page shows, by kind; `widgets`: ids by the key that the page gave them."""

    def __init__(self, socket):
        self._socket = socket
        self.session_id = ""
        self.widgets = {}
        self.said = []
        self.exceptions = []

    def open(self, page="", query="", pressed=(), values=None, *, wait=True):
        """One run of the script: `page` by its path, buttons that were pressed, other boxes with their values."""
        message = BackMsg()
        message.rerun_script.query_string = query
        message.rerun_script.page_name = page
        for key in pressed:
            state = message.rerun_script.widget_states.widgets.add()
            state.id, state.trigger_value = self.widgets[key], True
        for key, value in (values or {}).items():
            state = message.rerun_script.widget_states.widgets.add()
            state.id, state.string_value = self.widgets[key], value
        self.said, self.exceptions = [], []
        self._socket.send(message.SerializeToString())
        return self.listen() if wait else self

    def listen(self, longest_s=RUN_S):
        """Read until the script has ended."""
        give_up = time.monotonic() + longest_s
        while time.monotonic() < give_up:
            answer = ForwardMsg()
            answer.ParseFromString(self._socket.recv(longest_s))
            kind = answer.WhichOneof("type")
            if kind == "new_session":
                self.session_id = answer.new_session.initialize.session_id
            elif kind == "delta" and answer.delta.WhichOneof("type") == "new_element":
                self._take(answer.delta.new_element)
            elif kind == "script_finished":
                return self
        raise TimeoutError("the page did not end")

    def _take(self, element):
        kind = element.WhichOneof("type")
        shown = getattr(element, kind)
        if kind == "exception":
            self.exceptions.append(shown.message)
        if getattr(shown, "id", ""):
            self.widgets[shown.id.split("-", 2)[-1]] = shown.id  # "$$ID-" hash "-" key
        for name in ("body", "label", "text"):
            self.said.append(str(getattr(shown, name, "")))


@contextmanager
def visiting(port):
    origin = f"http://127.0.0.1:{port}"
    with connect(
        f"ws://127.0.0.1:{port}/_stcore/stream",
        origin=origin,
        max_size=None,
        open_timeout=60,
        close_timeout=0.1,
    ) as s:
        yield Visitor(s)


def put(port, path, body, **headers):
    """(status, answer) of an upload."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("PUT", path, body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(2000)
    finally:
        connection.close()
