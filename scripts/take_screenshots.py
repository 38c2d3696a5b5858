"""Write docs/images/size.png: the first visit as the README shows it, taken from the running app by a real browser.

Usage: python scripts/take_screenshots.py [--browser /usr/bin/chromium]
"""

import argparse
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
WIDTH, HEIGHT = 1280, 860
START_S = 60
DRAWN_MS = 30_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--browser", default=shutil.which("chromium"), help="a Chromium (found on PATH)")
    browser = parser.parse_args().browser
    if not browser:
        print("No Chromium was found. Install it, or name one with --browser.", file=sys.stderr)
        return 4
    IMAGES.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true"]
    server = subprocess.Popen([*command, "--server.port", str(port)], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/_stcore/health")
        take(browser, f"{url}/", IMAGES / "size.png")
    finally:
        server.terminate()
        server.wait(10)
    return 0


def wait_for(url: str) -> None:
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the app did not start")


def take(browser: str, url: str, target: Path) -> None:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
        page.goto(url)
        page.wait_for_selector(".js-plotly-plot .main-svg", timeout=DRAWN_MS)
        page.wait_for_selector("[data-stale='true']", state="detached", timeout=DRAWN_MS)
        page.wait_for_timeout(1000)  # the last fonts
        page.screenshot(path=target)
        chromium.close()


if __name__ == "__main__":
    sys.exit(main())
