"""Captured prompts on the dashboard: shown where there are some, sent again, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Tab, tab
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.scripted import ScriptedModel
from tests.ui.conftest import HELLO, HOSTILE
from tests.ui.test_dashboard import section

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def capturing(browser: Browser, engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[RunningDaemon]:
    """A daemon that captures what is asked of `talker`."""
    models = {
        "talker": {"file": str(scripted_model(HELLO, when={"hostile": HOSTILE}))},
        "other": {"file": str(scripted_model("Another answer."))},
    }
    settings = {"models": models, "capture": {"models": ["talker"]}}
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as running:
        yield running


@pytest.fixture
def page_of_it(browser: Browser, capturing: RunningDaemon) -> Iterator[Tab]:
    with tab(browser, capturing.url, viewport={"width": 1280, "height": 800}) as found:
        yield found


def test_nothing_is_said_of_it_where_nothing_is_captured(daemon: RunningDaemon, laptop: Tab) -> None:
    page = laptop.go("requests")
    expect(section(page, "History")).to_be_visible()
    expect(section(page, "Captured")).to_have_count(0)


def test_a_prompt_is_shown_sent_again_and_deleted(capturing: RunningDaemon, page_of_it: Tab) -> None:
    page = page_of_it.go("requests")
    captured = section(page, "Captured")
    expect(captured).to_contain_text("No request was captured yet.")
    capturing.chat("talker", "be hostile, please")
    wait_until(lambda: bool(capturing.http.get("/api/v1/captures").json()["captures"]), "it is captured")
    captured.get_by_role("button", name="Look again").click()
    captured.get_by_role("button", name="Show captured request 1").click()
    one = captured.get_by_role("group", name="Captured request 1")
    expect(one).to_contain_text("be hostile, please")
    expect(one).to_contain_text("<script>document.title")  # as a text
    one.get_by_label("Model").select_option("other")
    one.get_by_role("button", name="Send again").click()
    expect(one).to_contain_text("Another answer.")
    one.get_by_role("button", name="Delete").click()
    expect(captured).to_contain_text("No request was captured yet.")
    assert capturing.http.get("/api/v1/captures").json()["captures"] == []
