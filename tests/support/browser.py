"""A real browser, Chromium of the system, driven by Playwright; what it complains of fails the test."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.support.lacking import lacking
from tests.support.patience import PATIENCE

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_WAIT_MS = PATIENCE * 1000
expect.set_options(timeout=_WAIT_MS)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for the length of the block; ends the test where the machine has none.

    Playwright keeps a loop in this thread meanwhile: no test beside may run one of its own.
    """
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        lacking("the tests of the dashboard need Chromium")
    inside = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has no sandbox to be put into
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=inside)
        yield browser
        browser.close()


class Tab:
    """An open tab, and what its page complained of.

    Attributes:
        refused: a status that the page may be answered with: the browser itself writes it to the console.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.refused: set[int] = set()
        self._url = url
        page.set_default_timeout(_WAIT_MS)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def go(self, place: str = "overview") -> Page:
        """Show a page of the dashboard, by its place behind `#/`."""
        self.page.goto(f"{self._url}/ui#/{place}")
        self.page.get_by_role("heading", level=1).wait_for()
        return self.page

    def _heard(self, message: ConsoleMessage) -> None:
        expected = any(f"status of {status} " in message.text for status in self.refused)
        if message.type in {"error", "warning"} and not expected:
            self.complaints.append(f"{message.type}: {message.text} at {message.location}")


@contextlib.contextmanager
def tab(browser: Browser, url: str, **context: Any) -> Iterator[Tab]:
    """A tab without a past; whatever its page complains of fails the test. `context`: size, colours and the like."""
    with contextlib.closing(browser.new_context(**context)) as made:
        found = Tab(made.new_page(), url)
        yield found
    assert not found.complaints, "\n".join(found.complaints)


def axe_script(folder: Path) -> str:
    """The checker of accessibility, from the folder of installed Node packages."""
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
