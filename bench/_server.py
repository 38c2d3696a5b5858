"""The app on a free loopback port, as `ridgebeam app` starts it, ended when the block ends."""

import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass

START_S = 60


@dataclass(frozen=True)
class Server:
    """Where it answers, and the process that does."""

    url: str
    pid: int


@contextmanager
def served():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true"]
    command += ["--server.port", str(port), "--server.address", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url)
        yield Server(url, process.pid)
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(url):
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up:
        try:
            if urllib.request.urlopen(url + "/_stcore/health", timeout=1).status == 200:
                return
        except OSError:
            time.sleep(0.25)
    raise RuntimeError("the app did not start")
