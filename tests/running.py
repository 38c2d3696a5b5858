"""Processes of ours as a person starts them: the app, verbs of the command line, and whoever they started."""

import http.client
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST_S = 90


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def verb(*words, **environment):
    """A verb of the command line as a child."""
    return subprocess.Popen(
        [sys.executable, "-m", "cli", *map(str, words)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def wait_until(happened, what, longest_s=LONGEST_S):
    give_up = time.monotonic() + longest_s
    while not (found := happened()):
        assert time.monotonic() < give_up, what
        time.sleep(0.05)
    return found


def descendants(pid):
    """Process ids of the children, their children, and so on, that run now."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            parents.setdefault(int(parent), []).append(int(folder.name))
    found = list(parents.get(pid, ()))
    for child in found:  # grows while it is read
        found += parents.get(child, ())
    return found


def still_there(pids):
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.append(pid)
    return found


def healthy(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/_stcore/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def app(port=None, **environment):
    """(the app as `ridgebeam app` starts it, its port); whatever is left of it at the end of the block is ended."""
    port = port or free_port()
    server = verb("app", "--port", port, STREAMLIT_SERVER_HEADLESS="true", **environment)
    try:
        wait_until(lambda: healthy(port) or server.poll() is not None, "the app does not answer")
        assert server.poll() is None
        yield server, port
    finally:
        server.kill()
        server.wait()
