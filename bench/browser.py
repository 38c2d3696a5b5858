"""A real browser: first heading on a fresh server, warm reload, a changed number to a changed answer, script time alone.

Needs Chromium (on the path, or in CHROMIUM). Targets: heading 3.5 s cold and 1.5 s warm, answer 0.6 s, script 0.1 s.
"""

import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

from bench._timing import median_s

REPEATS = 5


def rows():
    yield from _script()
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if executable is None:
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play, _server() as url:
        browser = play.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = browser.new_context(reduced_motion="reduce").new_page()
        yield "first heading, fresh server, empty browser cache", _heading_s(page, url), "s"
        yield "heading of a reload", statistics.median(_heading_s(page, url) for _ in range(REPEATS)), "s"
        yield "changed rate to changed title", statistics.median(_changes_s(page)), "s"
        browser.close()


def _script():
    """One rerun of the default page without a browser, its answer not in the cache."""
    from streamlit.testing.v1 import AppTest

    app = AppTest.from_file("../pages/_frame.py", default_timeout=120).run()
    rates = iter(range(11, 1000))

    def rerun():
        app.number_input(key="rate").set_value(float(next(rates))).run()

    yield "rerun of the script with a new rate (AppTest)", median_s(rerun), "s"


class _server:  # noqa: N801 - used as a function
    """A fresh server on a free port, ended when the block ends."""

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true"]
        command += [
            "--server.port",
            str(port),
            "--server.address",
            "127.0.0.1",
            "--server.fileWatcherType",
            "none",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}"
        for _ in range(240):
            try:
                if urllib.request.urlopen(url + "/_stcore/health", timeout=1).status == 200:
                    return url
            except OSError:
                time.sleep(0.25)
        raise RuntimeError("the app did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)


def _heading_s(page, url):
    start = time.perf_counter()
    page.goto(url)
    page.wait_for_selector("h1", timeout=120_000)
    return time.perf_counter() - start


def _changes_s(page):
    page.wait_for_timeout(3000)
    box = page.get_by_role("spinbutton", name="Requests per second, at peak")
    for rate in range(40, 40 + 30 * REPEATS, 30):
        before = page.locator("h1").inner_text()
        box.fill(str(rate))
        start = time.perf_counter()
        box.press("Enter")
        page.wait_for_function(
            "text => document.querySelector('h1').innerText !== text", arg=before, timeout=60_000
        )
        yield time.perf_counter() - start
        page.wait_for_timeout(1500)
