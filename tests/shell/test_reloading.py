"""A configuration that brings a bug out does not end the watch for the next one."""

from __future__ import annotations

from typing import Any

import pytest
import structlog.testing

from supervisor.errors import ConfigError
from supervisor.service.reload import Reloader

pytestmark = pytest.mark.anyio


class Broken(Reloader):
    """Fails however it is told to."""

    def __init__(self, error: Exception) -> None:
        self.failure = error

    async def reload(self) -> dict[str, Any]:
        raise self.failure


async def test_a_bug_is_logged_and_ends_nothing() -> None:
    with structlog.testing.capture_logs() as logged:
        await Broken(ValueError("nobody thought of it")).reload_quietly()
    assert [line["event"] for line in logged] == ["config_not_read"]


async def test_what_is_wrong_with_a_file_was_said_already() -> None:
    with structlog.testing.capture_logs() as logged:
        await Broken(ConfigError("a fault")).reload_quietly()
    assert logged == []
