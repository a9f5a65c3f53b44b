"""Fixtures of the engine layer's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.system.paths import Places
from tests.llamacpp.fakes import WebServer, make_places, web_server


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return make_places(tmp_path / "home")


@pytest.fixture
def site() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


@pytest.fixture
def real_server(engine_binary: Path) -> Path:
    """A llama-server that works."""
    return engine_binary
