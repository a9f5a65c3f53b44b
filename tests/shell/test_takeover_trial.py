"""The program that would take over is tried for as long as it works, and not for ever."""

from __future__ import annotations

import itertools
import os
import sys

import psutil
import pytest

from supervisor.daemon.takeover import trial
from supervisor.errors import TakeoverFailed
from supervisor.system.processes import Activity

pytestmark = pytest.mark.anyio

NOTHING = "import os; os.read(os.pipe()[0], 1)"
ENDLESS = "while True: pass"
SLOW = """
import os, time
while time.process_time() < 1: pass
print('{"version": "9", "format": 3}')
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is tried has used CPU time whenever it is looked at, on a busy machine too."""
    used = itertools.count()
    monkeypatch.setattr("supervisor.system.processes.activity", lambda pid: Activity(next(used), 0))


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_QUIET_S", 0.1)


def runs(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(trial, "command", lambda: [sys.executable, "-c", text])


@pytest.mark.usefixtures("works")
async def test_one_that_is_slow_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, SLOW)
    assert await trial.try_next(os.environ) == trial.Next("9", 3)


async def test_one_that_does_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    before = psutil.Process().children()
    runs(monkeypatch, NOTHING)
    with pytest.raises(TakeoverFailed, match="did nothing"):
        await trial.try_next(os.environ)
    assert psutil.Process().children() == before


@pytest.mark.usefixtures("works")
async def test_one_that_works_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_SECONDS", 1.0)
    before = psutil.Process().children()
    runs(monkeypatch, ENDLESS)
    with pytest.raises(TakeoverFailed, match="did not start"):
        await trial.try_next(os.environ)
    assert psutil.Process().children() == before
