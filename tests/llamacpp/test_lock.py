"""One installer at a time, between real processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.errors import BuildLocked
from supervisor.llamacpp.lock import engine_lock
from supervisor.llamacpp.progress import Progress
from tests.llamacpp.fakes import silent

HOLD = """
import asyncio, sys
from pathlib import Path
from supervisor.llamacpp.lock import engine_lock
async def hold():
    async with engine_lock(Path(sys.argv[1]), wait=False, report=print):
        print("held", flush=True)
        sys.stdin.read()
asyncio.run(hold())
"""


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    return tmp_path / "engines" / ".lock"


@pytest.fixture
def holder(lock_file: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock until its stdin closes."""
    argv = [sys.executable, "-c", HOLD, str(lock_file)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def idle_child() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)


def take(lock_file: Path, *, wait: bool) -> None:
    async def scenario() -> None:
        async with engine_lock(lock_file, wait=wait, report=silent):
            pass

    asyncio.run(scenario())


def test_the_second_is_told_who_is_first(lock_file: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(BuildLocked, match=f"process {holder.pid} .*--wait"):
        take(lock_file, wait=False)


def test_a_killed_holder_holds_nothing(lock_file: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    take(lock_file, wait=False)


def test_waiting_ends_when_the_first_does(lock_file: Path, holder: subprocess.Popen[str]) -> None:
    async def scenario() -> list[str]:
        told: list[str] = []

        def heard(step: Progress) -> None:
            told.append(step.detail)
            assert holder.stdin is not None
            holder.stdin.close()

        async with engine_lock(lock_file, wait=True, report=heard):
            return told

    assert asyncio.run(scenario()) == [f"process {holder.pid} is installing an engine"]


def test_that_somebody_waits_is_told_once(lock_file: Path) -> None:
    async def scenario() -> list[str]:
        told: list[str] = []

        async def wait() -> None:
            async with engine_lock(lock_file, wait=True, report=lambda step: told.append(step.detail), poll=0):
                """It is held."""

        async with engine_lock(lock_file, wait=False, report=silent):
            waiting = asyncio.ensure_future(wait())
            for _ in range(20):  # tries
                await asyncio.sleep(0)
        await waiting
        return told

    assert len(asyncio.run(scenario())) == 1


def test_released_also_after_an_error(lock_file: Path) -> None:
    async def scenario() -> None:
        async with engine_lock(lock_file, wait=False, report=silent):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(scenario())
    take(lock_file, wait=False)


def test_a_child_of_the_holder_does_not_inherit_it(lock_file: Path) -> None:
    async def scenario() -> subprocess.Popen[bytes]:
        async with engine_lock(lock_file, wait=False, report=silent):
            return idle_child()

    with asyncio.run(scenario()) as child:
        take(lock_file, wait=False)
        child.kill()
