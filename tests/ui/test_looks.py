"""The dashboard on a phone and on a wall, in light and in the dark, by keyboard, and for who does not see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import Tab, axe_script, tab
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.node_packages import node_folder

pytestmark = pytest.mark.engine

PLACES = ("overview", "models", "models/talker", "requests", "playground", "logs", "settings")
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
LAPTOP = {"viewport": {"width": 1366, "height": 768}}
WALL = {"viewport": {"width": 3840, "height": 2160}}
SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def axe() -> str:
    """The checker, as a script."""
    return axe_script(node_folder())


@pytest.fixture(scope="module", autouse=True)
def loaded(daemon: RunningDaemon) -> None:
    """A model is there, has answered, and another one has failed."""
    daemon.load("talker")
    daemon.chat("talker", "Hello")


def settle(page: Page) -> None:
    """Wait until the page has what it asked the daemon for."""
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    page.wait_for_function("document.fonts.status === 'loaded'")


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_axe_finds_nothing_serious(browser: Browser, daemon: RunningDaemon, axe: str, place: str, colours: Any) -> None:
    for size in (LAPTOP, PHONE):
        with tab(browser, daemon.url, **size, color_scheme=colours, bypass_csp=True) as shown:
            page = shown.go(place)
            settle(page)
            page.evaluate(axe)
            found = page.evaluate("axe.run().then((results) => results.violations)")
            told = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found if one["impact"] in SERIOUS]
            assert told == []


@pytest.mark.parametrize("size", [PHONE, LAPTOP, WALL], ids=["phone", "laptop", "wall"])
def test_no_page_is_wider_than_its_window(browser: Browser, daemon: RunningDaemon, size: dict[str, Any]) -> None:
    with tab(browser, daemon.url, **size) as shown:
        for place in PLACES:
            page = shown.go(place)
            settle(page)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place


def test_colours_follow_the_system_or_the_choice(browser: Browser, daemon: RunningDaemon) -> None:
    with tab(browser, daemon.url, color_scheme="dark") as shown:
        page = shown.go("settings")
        assert lightness(page) < 60
        page.get_by_role("combobox", name="Colours").select_option("light")
        assert lightness(page) > 200
        page.reload()
        page.get_by_role("heading", level=1).wait_for()
        assert lightness(page) > 200
        page.get_by_role("combobox", name="Colours").select_option("as the system")
        assert lightness(page) < 60


def lightness(page: Page) -> int:
    """Of the page's ground, from 0 to 255."""
    script = "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number))"
    return int(page.evaluate(script))


def test_a_keyboard_is_enough(daemon: RunningDaemon, laptop: Tab) -> None:
    page = laptop.go()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Models", exact=False).first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Models")
    expect(page.locator("main")).to_be_focused()
    assert page.title().startswith("Models")
    page.get_by_role("searchbox").focus()
    page.keyboard.type("talker")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("talker")


def test_a_key_is_asked_for_and_kept_in_the_tab_alone(browser: Browser, engine_binary: Path) -> None:
    key = "a-key-for-this-test"
    with (
        scratch_home() as home,
        running_daemon(home, engine_binary, env={"SUPERVISOR_API_KEY": key}) as daemon,
        tab(browser, daemon.url) as shown,
    ):
        shown.refused = {401}
        page = shown.go()
        expect(page.get_by_text("No model is loaded")).to_have_count(0)
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("API key").fill("a-wrong-one")
        dialog.get_by_role("button", name="Go on").click()
        expect(dialog).to_contain_text("was not taken")
        dialog.get_by_label("API key").fill(key)
        dialog.get_by_role("button", name="Go on").click()
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        expect(page.get_by_role("region", name="Device CPU")).to_be_visible()
        page.reload()
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        stored = "[...Object.values(localStorage), document.cookie].join()"
        assert key not in page.evaluate(stored)
        assert page.evaluate("Object.values(sessionStorage)") == [key]
        page.get_by_role("link", name="Settings").click()
        page.get_by_role("button", name="Forget the key").click()
        expect(dialog).to_be_visible()


def test_the_first_key_is_shown_and_the_tab_goes_on_with_it(browser: Browser, engine_binary: Path) -> None:
    with scratch_home() as home, running_daemon(home, engine_binary) as daemon, tab(browser, daemon.url) as shown:
        shown.refused = {401}
        page = shown.go("settings")
        keys = page.get_by_role("region", name="Keys")
        keys.get_by_label("Name").fill("first")
        keys.get_by_role("button", name="Add a key").click()
        expect(keys).to_contain_text("This tab goes on with it")
        expect(page.get_by_role("dialog")).to_have_count(0)
        first = keys.locator("pre").inner_text()
        keys.get_by_role("button", name="Rotate first").click()
        expect(keys.locator("pre")).not_to_have_text(first)
        expect(keys.get_by_role("row", name="first")).to_contain_text("active")
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        assert page.evaluate("Object.values(sessionStorage)") == [keys.locator("pre").inner_text()]


def test_a_key_that_may_not_look_has_the_playground(browser: Browser, engine_binary: Path) -> None:
    key = {"SUPERVISOR_API_KEY": "a-key-for-this-test"}
    with (
        scratch_home() as home,
        running_daemon(home, engine_binary, env=key) as daemon,
        tab(browser, daemon.url) as shown,
    ):
        shown.refused = {401, 403}
        bearer = {"authorization": f"Bearer {key['SUPERVISOR_API_KEY']}"}
        made = daemon.http.post("/api/v1/keys", json={"name": "user", "scopes": ["infer"]}, headers=bearer)
        page = shown.go()
        page.get_by_role("dialog").get_by_label("API key").fill(made.json()["key"])
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("status")).to_contain_text("there is nothing to see here")
        page.get_by_role("link", name="The playground").click()
        expect(page.get_by_role("combobox", name="Model")).to_have_value("demo")
        page.get_by_role("textbox", name="Message").fill("Who are you?")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("log")).to_contain_text("t/s")


@pytest.fixture
def asked(laptop: Tab) -> list[str]:
    """The addresses that the page asks for."""
    found: list[str] = []
    laptop.page.on("request", lambda request: found.append(request.url))
    return found


def test_a_hidden_tab_asks_nothing(daemon: RunningDaemon, laptop: Tab, asked: list[str]) -> None:
    page = laptop.go()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true, configurable: true})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.get_by_text("not connected")).to_be_visible()
    asked.clear()
    daemon.load("endless")
    daemon.http.post("/api/v1/models/unload", json={"model": "endless"})
    assert asked == []
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => false, configurable: true})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    assert any("/api/v1/memory" in url for url in asked)
    assert all(url.startswith(daemon.url) for url in asked)
