"""A slider or a button of the Understand pages, in a real browser and as the script alone: from the key to the new words.

Target 0.6 s at the pages' default sizes, of which the script takes under 0.1 s (runs of the simulator are in the script).
Needs Chromium for the browser's rows.
"""

import re
import statistics
import time

from bench._browser import app_in_browser
from bench._timing import median_s

REPEATS = 5
CAPTION = '[data-testid=stCaptionContainer]:has-text("{}")'
# page, role and name of what is moved, the key that moves it, where the new words stand
MOVES = (
    ("scheduler", "slider", "Slots", "ArrowRight", "h1"),
    (
        "scheduler",
        "slider",
        "Pass",
        "ArrowLeft",
        CAPTION.format("static:"),
    ),
    (
        "paged-kv",
        "button",
        "Add a request",
        "Enter",
        CAPTION.format("newest last"),
    ),
    ("queueing", "slider", "Load, %", "ArrowRight", "[data-testid=stMetric] >> nth=0"),
    ("speculative", "slider", "Acceptance", "ArrowRight", "h1"),
)
SCRIPTS = (
    ("scheduler.py", "slider", "sched_slots", range(3, 17)),
    ("paged_kv.py", "button", "paged-WRITE", range(20)),
    ("queueing.py", "slider", "q-load", range(60, 90)),
    ("speculative.py", "slider", "spec_acceptance", [0.5 + n / 100 for n in range(30)]),
)


def rows():
    yield from _scripts()
    with app_in_browser(viewport={"width": 1280, "height": 1600}) as opened:
        if opened is None:
            return
        page, url = opened
        for path, role, name, key, words in MOVES:
            page.goto(f"{url}/{path}")
            page.wait_for_selector("h1", timeout=120_000)
            page.wait_for_timeout(4000)
            times = [_move_s(page, role, name, key, words) for _ in range(REPEATS)]
            yield f"{path}: {name}, browser", statistics.median(times), "s"


def _scripts():
    """A rerun of the page's script, each time with a value that it has not seen."""
    from streamlit.testing.v1 import AppTest

    for file, kind, key, values in SCRIPTS:
        app = AppTest.from_file("../pages/_frame.py", default_timeout=120).run()
        app.switch_page(file).run()
        fresh = iter(values)

        def rerun(app=app, kind=kind, key=key, fresh=fresh):
            value, widget = next(fresh), getattr(app, kind)(key=key)
            (widget.click() if kind == "button" else widget.set_value(value)).run()

        yield f"{file}: {key}, script alone", median_s(rerun), "s"


def _move_s(page, role, name, key, words):
    moved = page.get_by_role(role, name=name).first
    if role == "slider":
        moved = (
            page.get_by_test_id("stSlider")
            .filter(has_text=re.compile(f"^{re.escape(name)}"))
            .get_by_role("slider")
            .first
        )
    moved.focus()
    before = page.locator(words).inner_text()
    start = time.perf_counter()
    page.keyboard.press(key)
    while page.locator(words).inner_text() == before:
        if time.perf_counter() - start > 30:
            raise RuntimeError(f"nothing changed after {key}")
        page.wait_for_timeout(10)
    taken = time.perf_counter() - start
    page.wait_for_timeout(1500)
    return taken
