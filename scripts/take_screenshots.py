"""Write docs/images: every page as docs/tour.md shows it (light, dark, phone), and size.png for the README.

A real browser on the running app. Pages that wait for a click get it: a simulation is run, a dot of the roofline chosen.

Usage: python scripts/take_screenshots.py [--browser /usr/bin/chromium] [--only PAGE ...]
"""

import argparse
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # pages._registry, when run as a script

from pages._registry import PAGES

IMAGES = ROOT / "docs/images"
README_SIZE = (1280, 860)
MODES = {"light": (1280, 1000), "dark": (1280, 1000), "phone": (390, 1500)}
TALL = {
    "roofline": 1500,
    "quantisation": 1400,
    "batch-size": 1250,
    "fleet": 1250,
}  # pages whose point is further down
QUALITY = 62  # of WebP: text stays sharp, a page takes some 40 kB
START_S = 90
DRAWN_MS = 240_000  # a first simulation compiles its loops
SETTLE_MS = 1_500


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--browser", default=shutil.which("chromium"), help="a Chromium (found on PATH)")
    parser.add_argument(
        "--only", nargs="*", help="pages by their address (size, roofline ...); all without it"
    )
    asked = parser.parse_args()
    if not asked.browser:
        print("No Chromium was found. Install it, or name one with --browser.", file=sys.stderr)
        return 4
    IMAGES.mkdir(parents=True, exist_ok=True)
    wanted = [entry.url_path for entry in PAGES if not asked.only or entry.url_path in asked.only]
    with serving() as url, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=asked.browser, args=["--no-sandbox"])
        for mode, (width, height) in MODES.items():
            context = chromium.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if mode == "dark" else "light",
                reduced_motion="reduce",
            )
            page = context.new_page()
            page.set_default_timeout(DRAWN_MS)
            for name in wanted:
                page.set_viewport_size({"width": width, "height": max(height, TALL.get(name, 0))})
                visit(page, url, name)
                save(page.screenshot(), IMAGES / f"{name}-{mode}.webp")
                print(f"{name} {mode}")
            context.close()
        if "size" in wanted:
            page = chromium.new_page(
                viewport={"width": README_SIZE[0], "height": README_SIZE[1]}, reduced_motion="reduce"
            )
            page.set_default_timeout(DRAWN_MS)
            visit(page, url, "size")
            page.screenshot(path=IMAGES / "size.png")
        chromium.close()
    return 0


@contextmanager
def serving():
    """The app on a free loopback port, as a first visitor finds it: without stored runs of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true"]
    with tempfile.TemporaryDirectory() as data:
        server = subprocess.Popen(
            [*command, "--server.port", str(port)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"RIDGEBEAM_DATA_DIR": data},
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/_stcore/health")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(10)


def wait_for(url: str) -> None:
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the app did not start")


def visit(page: Page, url: str, name: str) -> None:
    """Open a page, do what it waits for, and let it come to rest."""
    page.goto(f"{url}/{name}" if name != PAGES[0].url_path else url)
    page.get_by_role("heading", level=1).wait_for()
    rest(page)
    if name == "simulate":
        page.get_by_role("button", name="Simulate", exact=True).click()
        page.locator(".js-plotly-plot .main-svg").first.wait_for()
    if name == "roofline":
        page.locator(".js-plotly-plot .scatterlayer .point").last.click(force=True)
        page.get_by_text("At the datasheet's peaks", exact=True).wait_for()
    rest(page)


def rest(page: Page) -> None:
    """No rerun under way, and the last fonts there."""
    page.wait_for_timeout(SETTLE_MS)
    page.get_by_test_id("stStatusWidget").wait_for(state="detached")
    page.locator("[data-stale='true']").first.wait_for(state="detached")
    page.wait_for_timeout(SETTLE_MS)


def save(png: bytes, target: Path) -> None:
    """A screenshot as WebP."""
    Image.open(io.BytesIO(png)).convert("RGB").save(target, "WEBP", quality=QUALITY, method=6)


if __name__ == "__main__":
    sys.exit(main())
