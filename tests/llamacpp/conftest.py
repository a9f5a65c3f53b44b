"""Fixtures of the engine layer's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.paths import Places
from tests.llamacpp.fakes import WebServer, make_places, web_server


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return make_places(tmp_path / "home")


@pytest.fixture
def site() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


@pytest.fixture
def real_server() -> Path:
    """The llama-server that the tests were given; those that need one are skipped, saying so, without it."""
    given = os.environ.get("SUPERVISOR_LLAMA_SERVER")
    if not given:
        pytest.skip("SUPERVISOR_LLAMA_SERVER names no llama-server")
    return Path(given)
