"""Keep captured requests: taken in at once, made small and written by a thread of their own.

What waits for the thread has a bound. A request that finds no room is not captured, or its answer is cut; how many were
lost is counted, and told once an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import structlog

from supervisor.core.requests.captured import Captured, CaptureRules, Heard, captured, route_asked
from supervisor.errors import CaptureIncomplete, RecordNotFound, StoreUnusable
from supervisor.store.captures import CaptureTable, Row

_log = structlog.get_logger()

T = TypeVar("T")

MOST_HELD: Final = 64 << 20
"""Bytes of requests and answers that are heard at the moment, or wait to be written."""

_TOLD_EVERY_S: Final = 3600.0


class Captures:
    """The captured requests of one daemon.

    Args:
        path: of the file, which is made when there is something to write.
        rules: as they are at the moment.
        clock: seconds, for how often losses are told.

    Attributes:
        lost: requests that were not captured for want of room or of a file, or whose answer was cut for that.
    """

    def __init__(self, path: Path, rules: Callable[[], CaptureRules], clock: Callable[[], float]) -> None:
        self._path = path
        self._rules = rules
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "captures")
        self._table: CaptureTable | None = None  # the thread's own
        self._held = 0
        self._writing: list[tuple[Future[None], int]] = []
        self._told = float("-inf")
        self.lost = 0

    @property
    def on(self) -> bool:
        """True if anything is captured at the moment."""
        return self._rules().on

    def take(self, size: int) -> bool:
        """Take up room; return False where there is none."""
        if self._held + size > MOST_HELD:
            self._look()
        if self._held + size > MOST_HELD:
            self._lose()
            return False
        self._held += size
        return True

    def keep(self, heard: Heard, size: int) -> None:
        """Keep a request whose room was taken."""
        self._look()
        self._writing.append((self._thread.submit(self._write, heard), size))

    async def newest(self, limit: int, before: int | None, model: str | None, key: str | None) -> list[Row]:
        """Return the newest, newest first, without their texts. Raises StoreUnusable."""
        return await self._ask(lambda table: table.newest(limit, before, model, key))

    async def find(self, number: int) -> Row:
        """Return one, whole. Raises RecordNotFound, StoreUnusable."""
        found = await self._ask(lambda table: table.find(number))
        if found is None:
            raise _not_found(number)
        return found

    async def replayable(self, number: int) -> Captured:
        """Return one that can be sent again. Raises RecordNotFound, CaptureIncomplete, StoreUnusable."""
        one = (await self.find(number))[2]
        if one.asked_left_out:
            what = " and ".join(one.asked_left_out)
            raise CaptureIncomplete(f"Of the captured request {number}, {what} were not kept; send the original again.")
        if route_asked(one.record.path) is None:
            raise CaptureIncomplete(f"{one.record.path} is no path that can be asked again.")
        return one

    async def delete(self, number: int) -> None:
        """Delete one. Raises RecordNotFound, StoreUnusable."""
        if not await self._ask(lambda table: table.delete(number)):
            raise _not_found(number)

    async def clear(self) -> int:
        """Delete all; return how many there were. Raises StoreUnusable."""
        return await self._ask(lambda table: table.clear())

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._thread.submit(self._close)
        self._thread.shutdown()

    async def _ask(self, question: Callable[[CaptureTable], T]) -> T:
        def answer() -> T:
            if self._table is not None or self._path.exists():
                return question(self._opened())
            with contextlib.closing(CaptureTable.empty()) as nothing:
                return question(nothing)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, answer)
        except sqlite3.Error as error:
            raise StoreUnusable(f"The captured requests cannot be read: {error}.") from error

    def _look(self) -> None:
        """Give back the room of what is written."""
        waiting = [(write, size) for write, size in self._writing if not write.done()]
        self._held -= sum(size for _, size in self._writing) - sum(size for _, size in waiting)
        self._writing = waiting

    def _opened(self) -> CaptureTable:
        if self._table is None:
            self._table = CaptureTable.open(self._path)
        return self._table

    def _write(self, heard: Heard) -> None:
        rules = self._rules()
        with self._told_of_errors():
            one = captured(heard, rules.max_record_bytes)
            self._opened().add(one, rules.max_bytes, rules.max_records)

    def _close(self) -> None:
        if self._table is not None:
            self._table.close()

    @contextlib.contextmanager
    def _told_of_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, StoreUnusable) as error:
            _log.warning("capture_unwritten", reason=str(error))
        except Exception:  # noqa: BLE001 - a bug, which nobody would hear of: no one waits for the thread
            _log.exception("capture_unwritten")

    def _lose(self) -> None:
        self.lost += 1
        if self._clock() - self._told >= _TOLD_EVERY_S:
            self._told = self._clock()
            _log.warning("captures_lost", requests=self.lost)


def _not_found(number: int) -> RecordNotFound:
    return RecordNotFound(f"There is no captured request {number}; GET /api/v1/captures lists them.", param="id")
