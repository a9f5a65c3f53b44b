"""One answer for all who ask at the same time."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.system.shared import Shared

pytestmark = pytest.mark.anyio


class Work:
    """Work that the test ends; its result is its number. Work of an `error` raises it."""

    def __init__(self) -> None:
        self.begun = 0
        self.goes_on = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.goes_on.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return number


async def asked(shared: Shared[int], work: Work) -> asyncio.Task[int]:
    """One who has asked, and waits."""
    task = asyncio.ensure_future(shared.get(work))
    await asyncio.sleep(0)
    return task


async def test_nobody_gets_what_began_before_they_asked() -> None:
    shared, work = Shared[int](), Work()
    tasks = [await asked(shared, work) for _ in range(100)]
    work.goes_on.set()
    assert await asyncio.gather(*tasks) == [1, *[2] * 99]
    assert await shared.get(work) == 3


async def test_an_error_is_for_the_one_for_whom_it_was_done() -> None:
    shared, work = Shared[int](), Work()
    work.error = ValueError()
    tasks = [await asked(shared, work) for _ in range(3)]
    work.goes_on.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[0], ValueError)
    assert found[1:] == [2, 2]


async def test_who_leaves_leaves_the_others_their_answer() -> None:
    shared, work = Shared[int](), Work()
    tasks = [await asked(shared, work) for _ in range(3)]
    tasks[0].cancel()
    tasks[2].cancel()
    work.goes_on.set()
    assert await tasks[1] == 2
