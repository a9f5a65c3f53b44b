"""Keep the history: records are taken in at once, and written by a thread of their own, many at a time.

Nothing here waits on the loop. What the thread cannot write in time is dropped, counted, and told once an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import structlog

from supervisor.core.history.questions import Wanted
from supervisor.core.history.records import Finished, LoadRecord, Spent
from supervisor.core.speed.learn import MOST
from supervisor.errors import StoreUnusable
from supervisor.store.history import HistoryTable

_log = structlog.get_logger()

T = TypeVar("T")

_PAUSE_S = 0.25  # between two writes
MOST_PENDING = 20_000
_TOLD_EVERY_S = 3600.0
_FORGOTTEN_EVERY_S = 60.0
_DAY_S = 86_400.0


@dataclass(frozen=True)
class Kept:
    """What is kept of requests and loads: for so many days, and so many rows of each. No days: nothing."""

    days: float
    rows: int


class History:
    """The history of one daemon.

    Args:
        table: where it is kept; closed by `close`.
        kept: as it is set at the moment.
        clock: seconds since 1970.

    Attributes:
        dropped: records that were lost.
    """

    def __init__(self, table: HistoryTable, kept: Callable[[], Kept], clock: Callable[[], float]) -> None:
        self._table = table
        self._kept = kept
        self._clock = clock
        self._requests: list[Finished] = []
        self._loads: list[LoadRecord] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: list[tuple[Future[None], int]] = []
        self._unwritten = 0  # records that the thread had not written at the last look
        self._thread = ThreadPoolExecutor(1, "history")
        self._turn = asyncio.Semaphore(1)  # of clients' questions
        self._told = self._forgotten = float("-inf")
        self.dropped = 0

    def add(self, record: Finished | LoadRecord) -> None:
        """Take a record in."""
        if not self._kept().days:
            return
        if self._is_full():
            self._drop()
            return
        if isinstance(record, Finished):
            self._requests.append(record)
        else:
            self._loads.append(record)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, self._hand_over)

    async def ask(self, question: Callable[[HistoryTable], T]) -> T:
        """Answer a client's question by what is written, and by what is pending. Raises StoreUnusable.

        One after the other: what is written, and the daemon's own questions, wait for one of them at most.
        """
        async with self._turn:
            return await self._asked(question)

    async def _asked(self, question: Callable[[HistoryTable], T]) -> T:
        self._hand_over()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, question, self._table)
        except sqlite3.Error as error:
            raise StoreUnusable(f"The history cannot be read: {error}.") from error

    async def answered(self, model: str) -> list[Spent]:
        """Return what the newest requests of a model took, newest first; nothing where that cannot be read."""
        try:
            found = await self._asked(lambda table: table.requests(Wanted(model=model, status=200), MOST))
        except StoreUnusable as error:
            _log.warning("history_unreadable", reason=error.message)
            return []
        return [record.spent for _, record in found]

    async def flush(self) -> None:
        """Write what is pending."""
        self._hand_over()
        await asyncio.gather(*(asyncio.wrap_future(write) for write, _ in self._writing), return_exceptions=True)

    def close(self) -> None:
        """Write what is pending, and close the file."""
        if self._timer is not None:
            self._timer.cancel()
        self._thread.submit(self._write, self._requests, self._loads)
        self._thread.submit(self._table.close)
        self._thread.shutdown()

    def _is_full(self) -> bool:
        room = MOST_PENDING - len(self._requests) - len(self._loads)
        if room <= self._unwritten:
            self._look()
        return room <= self._unwritten

    def _hand_over(self) -> None:
        """Let the thread write; the next records are for the next time."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        requests, loads, self._requests, self._loads = self._requests, self._loads, [], []
        self._timer = loop.call_later(_PAUSE_S, self._rest)
        self._writing.append((self._thread.submit(self._write, requests, loads), len(requests) + len(loads)))
        self._look()

    def _rest(self) -> None:
        self._timer = None
        self._look()
        if self._requests or self._loads:
            self._hand_over()
        elif self._unwritten:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, self._rest)

    def _look(self) -> None:
        """Count what the thread has yet to write; a disk that stands still must not fill the memory."""
        self._writing = [(write, count) for write, count in self._writing if not write.done()]
        self._unwritten = sum(count for _, count in self._writing)

    def _write(self, requests: list[Finished], loads: list[LoadRecord]) -> None:
        with self._told_of_errors():
            if requests or loads:
                self._table.add(requests, loads)
            now, kept = self._clock(), self._kept()
            if now - self._forgotten >= _FORGOTTEN_EVERY_S:
                self._forgotten = now
                self._table.forget(now - kept.days * _DAY_S, kept.rows)

    @contextlib.contextmanager
    def _told_of_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError, UnicodeError) as error:  # also what no column holds
            _log.warning("history_unwritten", reason=str(error))

    def _drop(self) -> None:
        self.dropped += 1
        if self._clock() - self._told >= _TOLD_EVERY_S:
            self._told = self._clock()
            _log.warning("history_dropped", records=self.dropped)
