"""Servers for the load test: a real llama.cpp, and a scripted one that misbehaves as told. All on 127.0.0.1."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from llama_server import write_model
from scripted_server import ScriptedServer

SCRIPT = Path(__file__).parents[1] / "llama_server.py"
START_S = 60
SLOTS = 4


def start_llama(model, *, slots=SLOTS, life_s=240, context=4096):
    """(process, url). The process ends by itself after `life_s`."""
    server = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(model), str(slots), str(life_s), str(context)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    timer = threading.Timer(START_S, server.kill)
    timer.start()
    try:
        for line in server.stdout:
            if line.startswith("listening"):
                return server, line.split()[1]
    finally:
        timer.cancel()
    server.wait(10)
    raise RuntimeError(f"llama.cpp did not start (code {server.returncode})")


@pytest.fixture(scope="session")
def llama_url(tmp_path_factory):
    model = write_model(tmp_path_factory.mktemp("gguf") / "tiny.gguf", layers=2)
    server, url = start_llama(model)
    yield url
    server.kill()
    server.wait(10)


@pytest.fixture
def scripted():
    with ScriptedServer() as server:
        yield server
