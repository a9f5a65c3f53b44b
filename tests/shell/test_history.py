"""The history of a daemon: taken in at once, written by a thread, bounded while the thread stands still."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request
from starlette.types import Message
from structlog.testing import capture_logs

from supervisor.api.history import pages, told
from supervisor.core.history.questions import MOST_ROWS, Wanted
from supervisor.core.history.records import Finished, LoadRecord, Spent
from supervisor.core.schedule.events import Failure
from supervisor.errors import StoreUnusable
from supervisor.service.history import MOST_PENDING, History, Kept
from supervisor.service.records import Records
from supervisor.service.tallies import Tallies
from supervisor.store.history import HistoryTable, Numbered
from tests.store.test_history import load, request
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio

DAY_S = 86_400.0
NOW = 1000 * DAY_S


class Clock:
    """Seconds since 1970, as a test sets them."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Gated(HistoryTable):
    """One that writes nothing until its gate is open."""

    gate: threading.Event
    began: threading.Event

    def add(self, requests: Sequence[Finished], loads: Sequence[LoadRecord]) -> None:
        self.began.set()
        assert self.gate.wait(PATIENCE)
        super().add(requests, loads)


def gated(path: Path) -> Gated:
    table = Gated.open(path)
    table.gate, table.began = threading.Event(), threading.Event()
    return table


async def times(history: History) -> list[float]:
    return [one.at for _, one in await history.ask(lambda table: table.requests(Wanted(), 1000))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


async def test_a_question_is_answered_by_what_is_pending(path: Path) -> None:
    history = History(HistoryTable.open(path), lambda: Kept(1, 100), Clock())
    history.add(request(NOW))
    history.add(load(NOW))
    assert await times(history) == [NOW]
    assert len(await history.ask(lambda table: table.loads(None, None, 10))) == 1
    history.close()


async def test_close_writes_what_is_pending(path: Path) -> None:
    history = History(HistoryTable.open(path), lambda: Kept(1, 100), Clock())
    history.add(request(NOW))
    history.close()
    table = HistoryTable.open(path)
    assert [one.at for _, one in table.requests(Wanted(), 10)] == [NOW]
    table.close()


async def test_records_are_written_without_a_question(path: Path) -> None:
    table = gated(path)
    history = History(table, lambda: Kept(1, 100), Clock())
    history.add(request(NOW))
    assert await asyncio.to_thread(table.began.wait, PATIENCE)
    table.gate.set()
    history.close()


async def test_what_a_standing_disk_cannot_take_is_dropped_and_counted(path: Path) -> None:
    """The bound is of all that is not written: what waits for the thread, and what the thread has been given."""
    table = gated(path)
    history = History(table, lambda: Kept(1, MOST_PENDING * 2), Clock())
    history.add(request(NOW))
    assert await asyncio.to_thread(table.began.wait, PATIENCE)
    with capture_logs() as logs:
        for _ in range(MOST_PENDING + 10):
            history.add(load(NOW))
    assert history.dropped == 11
    assert [one["event"] for one in logs] == ["history_dropped"]
    table.gate.set()
    assert len(await history.ask(lambda table: table.loads(None, None, MOST_PENDING * 2))) == MOST_PENDING - 1
    history.add(request(NOW + 1))
    assert await times(history) == [NOW + 1, NOW]
    assert history.dropped == 11
    history.close()


async def test_no_days_keep_nothing_and_let_go_of_what_there_was(path: Path) -> None:
    table = HistoryTable.open(path)
    table.add([request(NOW - 1)], [load(NOW - 1)])
    history = History(table, lambda: Kept(0, 100), Clock())
    history.add(request(NOW))
    assert await times(history) == []
    history.close()


async def test_what_is_too_old_or_too_much_is_forgotten(path: Path) -> None:
    clock = Clock()
    history = History(HistoryTable.open(path), lambda: Kept(2, 3), clock)
    history.add(request(NOW - 3 * DAY_S))
    for number in range(3):
        history.add(request(NOW - number))
    await times(history)
    assert len(await times(history)) == 3
    clock.now += 2 * DAY_S - 1.5
    await times(history)
    assert await times(history) == [NOW - 1, NOW]
    history.close()


async def test_what_the_database_says_is_an_error_or_a_warning(path: Path) -> None:
    table = HistoryTable.open(path)
    history = History(table, lambda: Kept(1, 100), Clock())
    await history.ask(lambda table: table._database.rows("SELECT 1"))
    with capture_logs() as logs:
        await history.ask(lambda table: table.close())
        history.add(request(NOW))
        with pytest.raises(StoreUnusable):
            await times(history)
        history.close()
    assert "history_unwritten" in [one["event"] for one in logs]


async def test_a_load_lasts_from_its_start_until_it_is_ready(path: Path) -> None:
    clock = Clock()
    history = History(HistoryTable.open(path), lambda: Kept(1, 100), clock)
    records = Records(history, Tallies(), clock)
    records.engine("engine_start", "m", 1, None)
    clock.now += 2.5
    records.engine("engine_ready", "m", 1, None)
    records.engine("engine_ready", "m", 2, None)
    records.engine("engine_gone", "m", 1, Failure("engine_crashed", "It crashed."))
    found = [one for _, one in reversed(await history.ask(lambda table: table.loads("m", None, 10)))]
    assert [one.seconds for one in found] == [None, 2.5, None, None]
    assert (found[-1].code, found[-1].reason) == ("engine_crashed", "It crashed.")
    history.close()


async def test_clients_questions_take_turns_and_the_daemon_s_own_waits_for_one(path: Path) -> None:
    table, order = HistoryTable.open(path), list[str]()
    history = History(table, lambda: Kept(1, 100), Clock())
    goes_on = threading.Event()

    def asked(name: str, _: HistoryTable) -> str:
        assert goes_on.wait(PATIENCE)
        order.append(name)
        return name

    clients = [asyncio.ensure_future(history.ask(partial(asked, name))) for name in "abcd"]
    await asyncio.sleep(0)
    own = asyncio.ensure_future(history.answered("m"))
    own.add_done_callback(lambda _: order.append("own"))
    await asyncio.sleep(0)
    clients[2].cancel()  # a client that has left is asked for no more
    goes_on.set()
    await asyncio.gather(own, *clients, return_exceptions=True)
    assert order.index("own") < order.index("d")
    assert [one for one in order if one != "own"] == ["a", "b", "d"]
    history.close()


async def test_what_no_column_holds_is_told(path: Path) -> None:
    history = History(HistoryTable.open(path), lambda: Kept(1, 100), Clock())
    with capture_logs() as logs:
        history.add(replace(request(NOW), spent=Spent(prompt_tokens=1 << 64)))
        assert await times(history) == []
        history.add(request(NOW))
        assert await times(history) == [NOW]
    assert [one["event"] for one in logs] == ["history_unwritten"]
    history.close()


async def test_pages_are_written_by_the_thread_of_the_history(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a thousand requests takes tens of milliseconds: on the loop, every stream would stand still."""
    table, threads = HistoryTable.open(path), set[str]()
    table.add([request(NOW - number) for number in range(MOST_ROWS + 1)], [load(NOW)])
    history = History(table, lambda: Kept(1, 10 * MOST_ROWS), Clock())

    class Seen(dict[str, object]):
        def items(self) -> Any:
            threads.add(threading.current_thread().name)
            return super().items()

    def write(found: list[Numbered], first: bool) -> str:
        threads.add(threading.current_thread().name)
        return f"{len(found)} {first}"

    assert [page async for page in pages(history, Wanted(), write)] == [f"{MOST_ROWS} True", "1 False"]

    async def stays() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    client = Request({"type": "http"}, stays)
    answer = await told(client, history, lambda _: Seen(a=1))
    assert (answer.body, answer.media_type) == (b'{"a":1}', "application/json")
    assert {name.rpartition("_")[0] for name in threads} == {"history"}
    history.close()
