"""A visitor of the running app without a browser: the page's own websocket protocol, and its uploads."""

import http.client
import time
from contextlib import contextmanager

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

RUN_S = 120


class Visitor:
    """One session. `widgets`: ids by the key that the page gave them; `said`, `exceptions`: texts of the last run."""

    def __init__(self, socket, port):
        self._socket, self._port = socket, port
        self.session_id = ""
        self.widgets = {}
        self.said = []
        self.exceptions = []

    def open(self, page="", query="", pressed=(), values=None, files=None, *, wait=True):
        """One run of the script: `page` by its path, buttons that were pressed, boxes with their values, files."""
        message = BackMsg()
        message.rerun_script.query_string = query
        message.rerun_script.page_name = page
        states = message.rerun_script.widget_states.widgets
        for key in pressed:
            states.add(id=self.widgets[key], trigger_value=True)
        for key, value in (values or {}).items():
            states.add(id=self.widgets[key], string_value=value)
        for key, (name, size) in (files or {}).items():
            info = states.add(id=self.widgets[key]).file_uploader_state_value.uploaded_file_info.add()
            info.file_id, info.name, info.size = name, name, size
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
        self.said += [str(getattr(shown, name, "")) for name in ("body", "label", "text")]

    def send_file(self, name, data, *, session=None, token=None):
        """The status with which the server takes a file, sent as a browser does; `data` bytes, or pieces of them."""
        cookie = token or ask(self._port, "GET", "/_stcore/health")[1]["set-cookie"].split(";")[0]
        head = f'--end\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        foot = b"\r\n--end--\r\n"
        body = head + data + foot if isinstance(data, bytes) else (part for part in (head, *data, foot))
        return ask(
            self._port,
            "PUT",
            f"/_stcore/upload_file/{session or self.session_id}/{name}",
            body=body,
            headers={
                "Content-Type": "multipart/form-data; boundary=end",
                "Cookie": cookie,
                "X-Xsrftoken": cookie.partition("=")[2],
            },
        )[0]


@contextmanager
def visiting(port):
    with connect(
        f"ws://127.0.0.1:{port}/_stcore/stream",
        origin=f"http://127.0.0.1:{port}",
        max_size=None,
        open_timeout=60,
        close_timeout=0.1,
    ) as socket:
        yield Visitor(socket, port)


def ask(port, method, path, *, body=None, headers=None):
    """(status, headers) of a request; a server that hangs up while it is still being sent to has refused: 413."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        answer.read()
    except (BrokenPipeError, ConnectionResetError):
        return 413, {}
    else:
        return answer.status, answer.headers
    finally:
        connection.close()
