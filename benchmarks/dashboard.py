"""What the dashboard costs: the daemon while it is open, and how soon a browser shows it.

    .venv/bin/python -m benchmarks.dashboard [--seconds N] [--engine PATH]

A real browser, Chromium of the system, has the overview open: live models, devices every three seconds. Figures:

    idle       CPU time of the daemon's process per second, one model loaded, no page open
    open       the same with the page open
    paint      from the request for the page to the first text on the screen, median of five fresh browsers
    weight     bytes of all files that the page loads
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import psutil
from playwright.sync_api import Browser, sync_playwright

from benchmarks.model import make_model
from benchmarks.servers import supervisor
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places

_PAINTS = 5
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_WEIGHT = (
    "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
    ".filter((one) => one.name.includes('/ui')).reduce((sum, one) => sum + one.encodedBodySize, 0)"
)


def main(argv: Sequence[str]) -> int:
    """Run everything and print."""
    parser = argparse.ArgumentParser(description="CPU of the daemon while a dashboard is open; its first paint.")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="of each measurement (default: 60)")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to use (default: as the program finds it)")
    arguments = parser.parse_args(argv)
    binary = locate(places(os.environ), os.environ, arguments.engine).path
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        found = _measure(binary, Path(folder), arguments.seconds)
    for name, value in found.items():
        print(f"| {name} | {value:,.2f} |")
    print(json.dumps(found))
    return 0


def _measure(binary: Path, folder: Path, seconds: float) -> dict[str, float]:
    model = folder / "bench.gguf"
    make_model(model)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    inside = ["--no-sandbox"] if os.geteuid() == 0 else []
    with supervisor(binary, model, folder, 4) as server, sync_playwright() as playwright:
        url = f"http://127.0.0.1:{server.place.port}/ui"
        process = psutil.Process(server.pid)
        idle = _share(process, seconds)
        browser = playwright.chromium.launch(executable_path=chromium, args=inside)
        paints, weights = zip(*(_paint(browser, url) for _ in range(_PAINTS)), strict=True)
        page = browser.new_page()
        page.goto(url)
        page.locator(".bar").first.wait_for()
        opened = _share(process, seconds)
        browser.close()
    return {
        "idle [% of a core]": idle,
        "open [% of a core]": opened,
        "cost [% of a core]": opened - idle,
        "first paint [ms]": median(paints),
        "weight [kB]": max(weights) / 1000,
    }


def _share(process: psutil.Process, seconds: float) -> float:
    """Percent of a core that the process uses in so many seconds."""
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, took = process.cpu_times(), time.monotonic() - began
    return 100 * (after.user + after.system - before.user - before.system) / took


def _paint(browser: Browser, url: str) -> tuple[float, float]:
    """Milliseconds until the first text, and bytes, in a browser that has kept nothing."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    page.locator(".bar").first.wait_for()
    page.wait_for_function(f"{_PAINTED} !== undefined")
    found = float(page.evaluate(_PAINTED)), float(page.evaluate(_WEIGHT))
    context.close()
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
