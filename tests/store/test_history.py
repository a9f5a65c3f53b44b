"""The history's file: what goes in comes out, within its bounds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.core.history.questions import Wanted
from supervisor.core.history.records import LONGEST, Finished, LoadRecord, Spent
from supervisor.errors import StoreTooNew
from supervisor.store.history import HistoryTable

SPENT = Spent(25, 5, 8, 10.0, 40.0, "stop")


def request(at: float, **more: object) -> Finished:
    one = Finished(at, f"id-{at:g}", "/p", "m", "bot", "agent", True, 200, None, 2.0, 0.5, 0.75, SPENT, 3)
    return replace(one, **more)  # type: ignore[arg-type]  # as each test gives them


def load(at: float, **more: object) -> LoadRecord:
    return replace(LoadRecord(at, "m", 1, "engine_start"), **more)  # type: ignore[arg-type]  # as each test gives them


@pytest.fixture
def table(tmp_path: Path) -> Iterator[HistoryTable]:
    opened = HistoryTable.open(tmp_path / "history.db")
    yield opened
    opened.close()


def times(table: HistoryTable) -> list[float]:
    return [one.at for _, one in table.requests(Wanted(), 1000)]


def test_what_goes_in_comes_out(table: HistoryTable) -> None:
    nothing = request(2.0, model=None, key=None, stream=False, code="boom", queued=None, first=None, spent=Spent())
    failed = load(3.0, event="engine_gone", code="engine_crashed", reason="It crashed.")
    table.add([request(1.0), nothing], [load(1.0, seconds=2.5), failed])
    assert [one for _, one in table.requests(Wanted(), 10)] == [nothing, request(1.0)]
    assert [one for _, one in table.loads(None, None, 10)] == [failed, load(1.0, seconds=2.5)]
    (newest, _), _ = table.requests(Wanted(), 10)
    assert table.request(newest) == (newest, nothing)
    assert table.request(newest + 1) is None
    assert [(one.at, one.predicted_ms, one.code) for one in table.samples(Wanted())] == [
        (2.0, None, "boom"),
        (1.0, 40.0, None),
    ]


def test_it_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    for count in (1, 2):
        table = HistoryTable.open(tmp_path / "history.db")
        table.add([request(float(count))], [])
        assert len(times(table)) == count
        table.close()


def test_pages_follow_each_other_without_gap_or_repetition(table: HistoryTable) -> None:
    table.add([request(float(at)) for at in range(10)], [load(float(at)) for at in range(10)])
    for ask in (lambda before: table.requests(Wanted(before=before), 4), lambda before: table.loads("m", before, 4)):
        found: list[float] = []
        before = None
        while page := ask(before):
            found += [one.at for _, one in page]
            before = page[-1][0]
            table.add([request(99.0)], [load(99.0)])  # what ends meanwhile is on no later page
        assert found[:1] in ([9.0], [99.0])
        assert [at for at in found if at != 99.0] == [float(at) for at in range(9, -1, -1)]


def test_bounds_of_age_and_of_rows(table: HistoryTable) -> None:
    table.add([request(float(at)) for at in range(10)], [load(float(at)) for at in range(10)])
    table.forget(before=3.0, most=100)
    assert times(table) == [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0]
    table.forget(before=0.0, most=2)
    assert times(table) == [9.0, 8.0]
    assert [one.at for _, one in table.loads(None, None, 100)] == [9.0, 8.0]
    table.forget(before=0.0, most=2)
    assert times(table) == [9.0, 8.0]


def test_numbers_are_not_given_twice(table: HistoryTable) -> None:
    """A page's `before` must not come to mean a newer request."""
    table.add([request(1.0)], [load(1.0)])
    ((first, _),) = table.requests(Wanted(), 1)
    assert table.clear() == 1
    assert times(table) == []
    assert table.loads(None, None, 10) == []
    table.add([request(2.0)], [])
    assert table.requests(Wanted(), 1)[0][0] > first


def test_long_texts_are_cut(table: HistoryTable) -> None:
    long = "x" * 10_000
    table.add([request(1.0, client=long, request_id=long)], [load(1.0, reason=long)])
    ((_, one),) = table.requests(Wanted(), 1)
    ((_, two),) = table.loads(None, None, 1)
    assert len(one.client) == len(one.request_id) == LONGEST
    assert two.reason is not None
    assert len(two.reason) == 2000


def test_what_is_forgotten_stays_in_no_damaged_copy(tmp_path: Path) -> None:
    (tmp_path / "history.db").write_bytes(b"no database")
    table = HistoryTable.open(tmp_path / "history.db")
    assert list(tmp_path.glob("*.damaged-*"))
    assert table.clear() == 0
    table.close()
    assert not list(tmp_path.glob("*.damaged-*"))


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"this is no database" * 100)
    table = HistoryTable.open(path)
    table.add([request(1.0)], [])
    assert times(table) == [1.0]
    table.close()
    assert [kept for kept in tmp_path.iterdir() if kept != path and kept.read_bytes().startswith(b"this is no")]


def test_one_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    HistoryTable.open(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew):
        HistoryTable.open(path)
    assert path.read_bytes() == before
