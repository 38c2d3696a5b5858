"""A real browser: first heading on a fresh server, warm reload, a changed number to a changed answer, script time alone.

Needs Chromium (on the path, or in CHROMIUM). Targets: heading 3.5 s cold and 1.5 s warm, answer 0.6 s, script 0.1 s.
"""

import statistics
import time

from bench._browser import app_in_browser
from bench._timing import median_s

REPEATS = 5


def rows():
    yield from _script()
    with app_in_browser() as opened:
        if opened is None:
            return
        page, url = opened
        yield "first heading, fresh server, empty browser cache", _heading_s(page, url), "s"
        yield "heading of a reload", statistics.median(_heading_s(page, url) for _ in range(REPEATS)), "s"
        yield "changed rate to changed title", statistics.median(_changes_s(page)), "s"


def _script():
    """One rerun of the default page without a browser, its answer not in the cache."""
    from streamlit.testing.v1 import AppTest

    app = AppTest.from_file("../pages/_frame.py", default_timeout=120).run()
    rates = iter(range(11, 1000))

    def rerun():
        app.number_input(key="rate").set_value(float(next(rates))).run()

    yield "rerun of the script with a new rate (AppTest)", median_s(rerun), "s"


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
