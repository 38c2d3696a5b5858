"""The running server against another site's page: its Host header and its Origin."""

import http.client
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WEBSOCKET = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


@pytest.fixture(scope="module")
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true"]
    server = subprocess.Popen(
        [*command, "--server.port", str(free)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if not name.startswith("STREAMLIT")},
    )
    give_up = time.monotonic() + 90
    try:
        while asked(free, "/_stcore/health") != 200:
            assert server.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.2)
        yield free
    finally:
        server.terminate()
        server.wait(10)


def asked(port, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def opened(port, *, origin, host):
    return asked(port, "/_stcore/stream", **WEBSOCKET, Origin=origin, Host=host)


def test_its_own_page_gets_a_websocket(port):
    assert opened(port, origin=f"http://127.0.0.1:{port}", host=f"127.0.0.1:{port}") == 101
    assert opened(port, origin=f"http://localhost:{port}", host=f"localhost:{port}") == 101


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1.evil.example"])
def test_another_sites_page_gets_no_websocket(port, origin):
    assert opened(port, origin=origin, host=f"127.0.0.1:{port}") == 403


def test_a_foreign_host_header_gets_no_websocket(port):
    assert opened(port, origin="http://evil.example", host="evil.example") == 403
    assert opened(port, origin=f"http://evil.example:{port}", host=f"evil.example:{port}") == 403
