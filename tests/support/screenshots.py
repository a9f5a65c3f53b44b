"""Makes the pictures of docs/dashboard.md anew: a daemon on two devices of Mesa's software driver, Chromium, and this.

.venv/bin/python -m tests.support.screenshots
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.cluster.stage import cluster_of
from tests.evidence.subjects import write_subject
from tests.support.browser import chromium, tab
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.made import ROOT
from tests.support.scripted import ScriptedModels
from tests.support.vulkan import VulkanEngine, require_vulkan_engine
from tests.support.weighty import write_weighty

FOLDER = ROOT / "docs" / "images"
PICTURES = ("overview", "plan", "playground", "phone", "nodes")
_TALL = {"viewport": {"width": 1240, "height": 1440}}
_LAPTOP = {"viewport": {"width": 1240, "height": 780}}
_PHONE = {"viewport": {"width": 390, "height": 800}, "is_mobile": True, "has_touch": True}
_POEM = (
    "A daemon sat beside a card\nand counted what it knew:\nthe weights, the cache, a buffer's yard,\n"
    "and room for one or two."
)


def main() -> int:
    """Write every picture."""
    engine = require_vulkan_engine()
    with scratch_home() as home, chromium() as browser:
        settings = {"models": _models(home), "devices": {"reserve_mib": {"vulkan": 64, "cpu": 1024}}}
        with running_daemon(home, engine.path, settings, env=engine.environment(2)) as daemon:
            for name in ("assistant", "coder", "narrator"):
                daemon.load(name)
            with _streams(daemon, "narrator", 2):
                _draw(browser, daemon)
        _draw_nodes(browser, engine, home)
    return 0


def _draw_nodes(browser: Browser, engine: VulkanEngine, home: Path) -> None:
    """The overview of one of two nodes, each with two devices."""
    models = _models(home)
    common = {"devices": {"reserve_mib": {"vulkan": 64, "cpu": 1024}}}
    desk = {"models": {name: models[name] for name in ("assistant", "narrator")}, **common}
    studio = {"models": {name: models[name] for name in ("coder", "poet")}, **common}
    with cluster_of(engine.path, env=engine.environment(2), desk=desk, studio=studio) as (one, two):
        one.did("load", "assistant")
        one.did("load", "narrator")
        two.did("load", "coder")
        two.did("load", "poet")
        with _streams(one.daemon, "narrator", 2), tab(browser, one.daemon.url, **_TALL) as shown:
            page = shown.go()
            there = page.get_by_role("region", name="Node studio")
            expect(there).to_contain_text("poet")
            expect(page.get_by_role("region", name="Device Vulkan1 of studio")).to_contain_text("coder")
            expect(page.get_by_role("cell", name="2 of 4")).to_be_visible()
            _save(page, "nodes")


def _models(home: Path) -> dict[str, Any]:
    scripted = ScriptedModels(home)
    poem = scripted(_POEM, think="Four lines, then, and they should rhyme.", n_ctx=131072)
    endless = scripted("and on it goes, ", endless=True, n_ctx=131072)
    return {
        "assistant": {"file": str(write_weighty(home / "assistant.gguf", poem, 16, 40)), "device": ["Vulkan0"]},
        "coder": {"file": str(write_weighty(home / "coder.gguf", poem, 12, 24)), "device": ["Vulkan1"], "pin": True},
        "poet": {"file": str(poem), "device": []},
        "narrator": {"file": str(endless), "device": [], "ctx_size": 131072},
        "qwen3-8b": {"file": str(write_subject("qwen3-8b", home))},
        "llama-3.3-70b": {"file": str(write_subject("llama-3.3-70b", home))},
    }


@contextlib.contextmanager
def _streams(daemon: RunningDaemon, model: str, number: int) -> Iterator[None]:
    """So many requests that go on for the length of the block."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    with contextlib.ExitStack() as stack:
        answers = [daemon.http.stream("POST", "/v1/chat/completions", json=body) for _ in range(number)]
        told = [stack.enter_context(one).iter_lines() for one in answers]  # kept: an answer is closed with it
        for lines in told:
            next(lines)
        yield


def _draw(browser: Browser, daemon: RunningDaemon) -> None:
    with tab(browser, daemon.url, **_LAPTOP) as shown:
        page = shown.go()
        expect(page.get_by_role("region", name="Device Vulkan1")).to_contain_text("coder")
        expect(page.get_by_role("cell", name="2 of 4")).to_be_visible()
        _save(page, "overview")
        page = shown.go("models/qwen3-8b")
        plan = page.get_by_role("region", name="Plan", exact=True)
        plan.get_by_role("combobox", name="Type of K").select_option("q8_0")
        expect(plan).to_contain_text("fit")
        expect(plan).to_have_attribute("aria-busy", "false")
        _save(page, "plan")
    with tab(browser, daemon.url, **_LAPTOP, color_scheme="dark") as shown:
        page = shown.go("playground/poet")
        page.get_by_role("textbox", name="Message").fill("A poem about memory, please.")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("log")).to_contain_text("t/s")
        page.get_by_role("log").get_by_text("Reasoning").click()
        _save(page, "playground")
    with tab(browser, daemon.url, **_PHONE) as shown:
        page = shown.go("models/llama-3.3-70b")
        expect(page.get_by_role("region", name="Plan", exact=True)).to_have_attribute("aria-busy", "false")
        _save(page, "phone")


def _save(page: Page, name: str) -> None:
    page.screenshot(path=FOLDER / f"dashboard-{name}.png", animations="disabled")


if __name__ == "__main__":
    sys.exit(main())
