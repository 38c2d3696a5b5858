"""A real browser against a real server on a free loopback port: what AppTest cannot see."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START_S = 60
# Streamlit looks for its own server below a deep link's path first, and finds it one level up: two 404s, not ours.
PROBES_OF_STREAMLIT = ("_stcore/health", "_stcore/host-config")


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args):
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not browser:
        pytest.skip("chromium is not installed")
    return {
        **browser_type_launch_args,
        "executable_path": browser,
        "args": ["--no-sandbox", "--disable-dev-shm-usage"],
    }


@contextmanager
def serving():
    """The app on a free port, as `ridgebeam app` starts it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true"]
    command += ["--server.address", "127.0.0.1", "--server.port", str(port)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(url, server)
        yield url
    finally:
        server.terminate()
        server.wait(10)


def _wait_for(url, server):
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up:
        if server.poll() is not None:
            raise RuntimeError(f"the app ended with {server.returncode} before it answered")
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the app did not start")


@pytest.fixture
def fresh_url():
    with serving() as url:
        yield url


@pytest.fixture(scope="session")
def base_url():
    with serving() as url:
        yield url


@pytest.fixture(scope="session")
def shared_context(browser):
    """One visitor's browser for the whole run, so that the app's 9 MB of scripts load once."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    yield context
    context.close()


@pytest.fixture
def page(shared_context):
    """A page that fails the test when the browser logs an error or an exception box is on screen at the end."""
    page = shared_context.new_page()
    errors = watched(page)
    yield page
    boxes = page.get_by_test_id("stException").count()
    page.close()
    assert not errors
    assert not boxes


@pytest.fixture
def another_visitor(browser):
    """Open a link in a browser that has never been here."""
    contexts = []

    def opened(link):
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 900}))
        page = contexts[-1].new_page()
        page.goto(link)
        return page

    yield opened
    for context in contexts:
        context.close()


def watched(page):
    errors = []
    page.set_default_timeout(30_000)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "response", lambda answer: errors.append(f"{answer.status} {answer.url}") if _bad(answer) else None
    )
    return errors


def _bad(answer):
    return answer.status >= 400 and not answer.url.endswith(PROBES_OF_STREAMLIT)
