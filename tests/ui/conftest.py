"""A browser and a daemon whose models say known texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.browser import Tab, chromium, tab
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.scripted import ScriptedModel

HELLO = "Hello from a model of the tests."
REASONED = "The answer is forty-two."
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; skips where there is none, fails under CI."""
    with chromium() as found:
        yield found


LONG = 1 << 18
"""A context that a slow browser beside a busy machine does not see the end of."""


@pytest.fixture(scope="module")
def daemon(browser: Browser, engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[RunningDaemon]:
    """A daemon with `talker`, `endless` and `huge`, which fits nowhere."""
    when = {"think": f"<think>\nLet me ponder.\n</think>\n\n{REASONED}", "weather": CALL, "hostile": HOSTILE}
    talker = scripted_model(HELLO, when=when, n_ctx=131072)
    endless = scripted_model("and on and on it goes, ", endless=True, n_ctx=LONG)
    models = {
        "talker": {"file": str(talker), "aliases": ["parrot"]},
        "endless": {"file": str(endless), "ctx_size": LONG, "parallel": 2},
    }
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running


@pytest.fixture
def laptop(browser: Browser, daemon: RunningDaemon) -> Iterator[Tab]:
    """A tab of an ordinary size."""
    with tab(browser, daemon.url, viewport={"width": 1280, "height": 800}) as found:
        yield found
