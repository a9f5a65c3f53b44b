"""A daemon, and a backend in front of it to which LocalAI attaches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.localai.loader import Client, Spawned, spawned
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.scripted import ScriptedModel

ENDLESS = 1 << 20  # tokens of context, in which no answer comes to its end
TOOL_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@dataclass
class Stage:
    """A daemon, its home, and a backend of its own."""

    home: Path
    engine: Path
    daemon: RunningDaemon
    backend: Spawned

    @property
    def client(self) -> Client:
        return self.backend.client


@pytest.fixture
def talker(scripted_model: ScriptedModel) -> Path:
    """Thinks, speaks and calls a tool; never ends after `endless`."""
    return scripted_model("Hello from here — ✓", think="Hm.", tools=TOOL_CALL)


@pytest.fixture
def endless(scripted_model: ScriptedModel) -> Path:
    return scripted_model("and on it goes, ", endless=True, n_ctx=ENDLESS)


@pytest.fixture(scope="module")
def daemon(engine_binary: Path) -> Iterator[RunningDaemon]:
    with scratch_home() as home, running_daemon(home, engine_binary) as found:
        yield found


@pytest.fixture
def stage(engine_binary: Path, daemon: RunningDaemon) -> Iterator[Stage]:
    """A backend of the test's own; what it loaded is unloaded when it ends."""
    with spawned(daemon.home, engine_binary) as backend:
        yield Stage(daemon.home, engine_binary, daemon, backend)
