"""The history: a row for every request that has ended, and for what happened to engines. Bounded in rows and age."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from supervisor.core.history.questions import MOST_SUMMED, Sample, Wanted
from supervisor.core.history.records import LONGEST, Finished, LoadRecord, Spent
from supervisor.store.database import Database
from supervisor.store.migrations import Migrations

_MIGRATIONS: Final[Migrations] = (
    (
        """CREATE TABLE requests (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            at REAL NOT NULL,
            request_id TEXT NOT NULL,
            path TEXT NOT NULL,
            model TEXT,
            key TEXT,
            client TEXT NOT NULL,
            stream INTEGER NOT NULL,
            status INTEGER NOT NULL,
            code TEXT,
            seconds REAL NOT NULL,
            queued REAL,
            first REAL,
            prompt_tokens INTEGER,
            cached_tokens INTEGER,
            completion_tokens INTEGER,
            prompt_ms REAL,
            predicted_ms REAL,
            finish TEXT,
            calls INTEGER NOT NULL
        )""",
        "CREATE INDEX requests_by_age ON requests (at)",
        "CREATE INDEX requests_by_model ON requests (model, id)",
        """CREATE TABLE loads (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            at REAL NOT NULL,
            model TEXT NOT NULL,
            engine INTEGER NOT NULL,
            event TEXT NOT NULL,
            seconds REAL,
            code TEXT,
            reason TEXT
        )""",
        "CREATE INDEX loads_by_age ON loads (at)",
    ),
)
"""The schema's steps; see `migrations`."""

_LONGEST_REASON: Final = 2000
_OF_REQUEST: Final = "at, request_id, path, model, key, client, stream, status, code, seconds, queued, first, calls"
_OF_SPENT: Final = "prompt_tokens, cached_tokens, completion_tokens, prompt_ms, predicted_ms, finish"
_OF_SAMPLE: Final = (
    "at, model, code, seconds, queued, first, prompt_tokens, cached_tokens, completion_tokens, predicted_ms"
)
_OF_LOAD: Final = "at, model, engine, event, seconds, code, reason"
_INSERT: Final = f"INSERT INTO requests ({_OF_REQUEST}, {_OF_SPENT}) VALUES ({', '.join('?' * 19)})"
_INSERT_LOAD: Final = f"INSERT INTO loads ({_OF_LOAD}) VALUES (?,?,?,?,?,?,?)"

Numbered = tuple[int, Finished]
"""A record and its `id`."""


class HistoryTable:
    """Its methods raise sqlite3.Error where the database does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the file for writing; create it where it is missing. Raises StoreTooNew, StoreUnusable."""
        return cls(Database.open(path, migrations=_MIGRATIONS))

    @classmethod
    def empty(cls) -> Self:
        """Return one in memory."""
        return cls(Database.empty(_MIGRATIONS))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(self, requests: Sequence[Finished], loads: Sequence[LoadRecord]) -> None:
        """Append records."""
        with self._database.change() as connection:
            connection.executemany(_INSERT, map(_row, requests))
            connection.executemany(_INSERT_LOAD, map(_load_row, loads))

    def forget(self, before: float, most: int) -> None:
        """Delete what is older, and of each table all but the newest `most`."""
        with self._database.change() as connection:
            for table in ("requests", "loads"):
                connection.execute(f"DELETE FROM {table} WHERE at < ?", (before,))
                connection.execute(
                    f"DELETE FROM {table} WHERE id <= (SELECT id FROM {table} ORDER BY id DESC LIMIT 1 OFFSET ?)",
                    (most,),
                )

    def clear(self) -> int:
        """Delete all; return how many requests there were."""
        with self._database.change() as connection:
            connection.execute("DELETE FROM loads")
            count = connection.execute("DELETE FROM requests").rowcount
        self._database.remove_damaged()
        return count

    def requests(self, wanted: Wanted, limit: int) -> list[Numbered]:
        """Return the newest of those that are wanted, newest first."""
        where, values = wanted.conditions()
        rows = self._database.rows(
            f"SELECT id, {_OF_REQUEST}, {_OF_SPENT} FROM requests{where} ORDER BY id DESC LIMIT ?", [*values, limit]
        )
        return [_numbered(row) for row in rows]

    def request(self, number: int) -> Numbered | None:
        """Return the one of that `id`."""
        rows = self._database.rows(f"SELECT id, {_OF_REQUEST}, {_OF_SPENT} FROM requests WHERE id = ?", (number,))
        return _numbered(rows[0]) if rows else None

    def samples(self, wanted: Wanted) -> list[Sample]:
        """Return what a summary looks at, newest first."""
        where, values = wanted.conditions()
        rows = self._database.rows(
            f"SELECT {_OF_SAMPLE} FROM requests{where} ORDER BY id DESC LIMIT ?", [*values, MOST_SUMMED]
        )
        return [Sample(*row) for row in rows]

    def loads(self, model: str | None, before: int | None, limit: int) -> list[tuple[int, LoadRecord]]:
        """Return what happened to engines, newest first; of one model, or of all."""
        where, values = Wanted(model=model, before=before).conditions()
        rows = self._database.rows(
            f"SELECT id, {_OF_LOAD} FROM loads{where} ORDER BY id DESC LIMIT ?", [*values, limit]
        )
        return [(row[0], LoadRecord(*row[1:])) for row in rows]


def _row(one: Finished) -> tuple[object, ...]:
    spent = one.spent
    return (
        *(one.at, one.request_id[:LONGEST], one.path, one.model, one.key, one.client[:LONGEST], one.stream, one.status),
        *(one.code, one.seconds, one.queued, one.first, one.calls),
        *(spent.prompt_tokens, spent.cached_tokens, spent.completion_tokens, spent.prompt_ms, spent.predicted_ms),
        spent.finish,
    )


def _numbered(row: tuple[Any, ...]) -> Numbered:
    number, at, request_id, path, model, key, client, stream, status, code, seconds, queued, first, calls = row[:14]
    found = Finished(
        *(at, request_id, path, model, key, client, bool(stream), status, code, seconds, queued, first),
        Spent(*row[14:]),
        calls,
    )
    return number, found


def _load_row(one: LoadRecord) -> tuple[object, ...]:
    reason = None if one.reason is None else one.reason[:_LONGEST_REASON]
    return one.at, one.model, one.engine, one.event, one.seconds, one.code, reason
