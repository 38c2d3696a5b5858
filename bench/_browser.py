"""A page of the app in Chromium, on a server of its own; Chromium is on the path, or named in CHROMIUM."""

import os
import shutil
from contextlib import contextmanager

from bench._server import served


@contextmanager
def app_in_browser(**context):
    """(page, address of the app), or None where there is no Chromium. `context`: of the browser, such as its viewport."""
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if executable is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play, served() as server:
        browser = play.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser.new_context(reduced_motion="reduce", **context).new_page(), server.url
        browser.close()
