"""A configuration that brings a bug out does not end the watch for the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog.testing

from supervisor.daemon.run import _beside
from supervisor.errors import ConfigError
from supervisor.service.reload import Reloader
from tests.support.patience import PATIENCE

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


async def test_a_bug_that_ends_what_runs_beside_the_daemon_is_logged() -> None:
    async def breaks() -> None:
        raise ValueError("nobody thought of it")

    with structlog.testing.capture_logs() as logged:
        with _beside(breaks()):
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # the task has ended; now it is told
        with _beside(asyncio.sleep(PATIENCE)):
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # a task that is cancelled at the end is no bug
    assert [line["event"] for line in logged] == ["work_ended"]
    assert str(logged[0]["exc_info"]) == "nobody thought of it"
