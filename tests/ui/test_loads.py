"""Loads as the dashboard shows them: their progress, their end, and why one failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.evidence.subjects import write_subject
from tests.support.browser import Tab, tab
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.gated import Gate
from tests.support.scripted import ScriptedModel
from tests.ui.test_dashboard import section

pytestmark = pytest.mark.engine


@dataclass
class Gated:
    """A daemon whose loads wait for a gate, and a tab that shows it."""

    gate: Gate
    daemon: RunningDaemon
    tab: Tab


@pytest.fixture
def gated(browser: Browser, engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[Gated]:
    """One of its own for each test: a failure leaves its traces."""
    with scratch_home() as home:
        gate = Gate(home, engine_binary)
        limit = {"limit_mib": {"CPU": 6144}}
        settings = {"models": {"talker": {"file": str(scripted_model())}}, "devices": limit}
        with running_daemon(home, gate.engine, settings) as daemon, tab(browser, daemon.url) as shown:
            yield Gated(gate, daemon, shown)


def test_a_load_is_followed_to_its_end(gated: Gated) -> None:
    page = gated.tab.go("models/talker")
    section(page, "Plan").get_by_role("button", name="Load", exact=True).click()
    loading = section(page, "Loading")
    expect(loading.get_by_role("progressbar")).to_have_attribute("value", "0.42")
    expect(loading).to_contain_text("text model · 42 %")
    gated.gate.open()
    expect(loading).to_have_count(0)
    expect(page.get_by_role("link", name="Chat", exact=True)).to_be_visible()


def test_a_load_is_cancelled(gated: Gated) -> None:
    page = gated.tab.go("models/talker")
    section(page, "Plan").get_by_role("button", name="Load", exact=True).click()
    section(page, "Loading").get_by_role("button", name="Cancel").click()
    expect(section(page, "Loading")).to_have_count(0)
    expect(section(page, "Plan").get_by_role("button", name="Load", exact=True)).to_be_enabled()
    assert gated.daemon.model("talker")["state"] == "unloaded"


def test_a_failure_is_shown_with_its_reason(gated: Gated) -> None:
    gated.gate.open(fail=True)
    page = gated.tab.go("models/talker")
    section(page, "Plan").get_by_role("button", name="Load", exact=True).click()
    failure = section(page, "Why it failed")
    expect(failure).to_contain_text("launch_option_refused")
    failure.get_by_text("What the engine said").click()
    expect(failure).to_contain_text("error: invalid argument: --nonsense")
    expect(page.get_by_text("failed", exact=True)).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("row", name="talker")).to_contain_text("launch_option_refused")
    page.get_by_role("link", name="Why talker").click()
    expect(section(page, "Why it failed")).to_be_visible()


def test_a_file_that_was_never_known_says_why_it_cannot_be_loaded(gated: Gated, tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF and nothing more")
    gated.tab.refused = {422}
    page = gated.tab.go("models")
    page.get_by_role("searchbox").fill(str(file))
    page.get_by_role("button", name="Plan").click()
    expect(section(page, "Plan").get_by_role("alert")).to_contain_text("gguf_invalid")
    expect(section(page, "Plan").get_by_role("button", name="Load")).to_be_disabled()
    expect(section(page, "Plan").get_by_role("slider")).to_have_count(0)


def test_a_file_that_was_mended_is_planned_again(gated: Gated, tmp_path: Path, scripted_model: ScriptedModel) -> None:
    file = tmp_path / "cut.gguf"
    file.write_bytes(b"GGUF and nothing more")
    gated.tab.refused = {422}
    page = gated.tab.go(f"models/{str(file).replace('/', '%2F')}")
    expect(section(page, "Plan").get_by_role("alert")).to_contain_text("gguf_invalid")
    file.write_bytes(scripted_model().read_bytes())
    page.get_by_role("button", name="Plan again").click()
    expect(section(page, "Plan")).to_contain_text("It fits on CPU")


def test_what_does_not_fit_says_what_is_missing(gated: Gated, tmp_path: Path) -> None:
    file = write_subject("llama-3.3-70b", tmp_path)
    page = gated.tab.go(f"models/{str(file).replace('/', '%2F')}")
    plan = section(page, "Plan")
    expect(plan).to_contain_text("It does not fit")
    expect(plan.get_by_role("region", name="Shortage on CPU")).to_contain_text("missing")
    expect(plan.get_by_role("button", name="Load")).to_be_disabled()
    plan.get_by_label("Read weights from the disk again and again").check()
    expect(plan).to_contain_text("It fits on CPU")
    expect(plan.get_by_role("button", name="Load")).to_be_enabled()
