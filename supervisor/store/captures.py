"""Captured requests: a ring of prompts and answers, bounded in bytes and in number, in a file for its owner alone.

What is deleted is overwritten (`secure_delete`), and what is forgotten as a whole leaves no trace in the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Self

from supervisor.core.history.records import LONGEST, Finished, Spent
from supervisor.core.requests.captured import Captured
from supervisor.store.database import Database
from supervisor.store.migrations import Migrations

_MIGRATIONS: Final[Migrations] = (
    (
        """CREATE TABLE captures (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            size INTEGER NOT NULL,
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
            prompt_tokens INTEGER,
            completion_tokens INTEGER,
            finish TEXT,
            asked_left_out TEXT NOT NULL,
            answer_left_out TEXT NOT NULL,
            headers TEXT NOT NULL,
            asked TEXT NOT NULL,
            answer TEXT NOT NULL
        )""",
        "CREATE INDEX captures_by_size ON captures (id, size)",
    ),
)
"""The schema's steps; see `migrations`."""

_OF_RECORD: Final = "at, request_id, path, model, key, client, stream, status, code, seconds"
_OF_SPENT: Final = "prompt_tokens, completion_tokens, finish"
_LEFT_OUT: Final = "asked_left_out, answer_left_out"
_SHORT: Final = f"id, size, {_OF_RECORD}, {_OF_SPENT}, {_LEFT_OUT}"
_TEXTS: Final = "headers, asked, answer"
_INSERT: Final = (
    f"INSERT INTO captures (size, {_OF_RECORD}, {_OF_SPENT}, {_LEFT_OUT}, {_TEXTS}) VALUES ({', '.join('?' * 19)})"
)
_TOO_MANY: Final = "DELETE FROM captures WHERE id <= (SELECT id FROM captures ORDER BY id DESC LIMIT 1 OFFSET ?)"
_TOO_LARGE: Final = """DELETE FROM captures WHERE id IN (
    SELECT id FROM (SELECT id, SUM(size) OVER (ORDER BY id DESC) AS total FROM captures) WHERE total > ?
)"""

Row = tuple[int, int, Captured]
"""A captured request with its `id` and its size in bytes; without its texts in a list of many."""


class CaptureTable:
    """Its methods raise sqlite3.Error where the database does."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.rows("PRAGMA secure_delete = ON")

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

    def add(self, one: Captured, max_bytes: int, max_records: int) -> None:
        """Append one, and delete the oldest that are too many or too large together."""
        with self._database.change() as connection:
            connection.execute(_INSERT, _values(one))
            connection.execute(_TOO_MANY, (max_records,))
            connection.execute(_TOO_LARGE, (max_bytes,))

    def newest(
        self, limit: int, before: int | None = None, model: str | None = None, key: str | None = None
    ) -> list[Row]:
        """Return the newest, newest first, without their texts."""
        given = {"id < ?": before, "model = ?": model, "key = ?": key}
        where = [condition for condition, value in given.items() if value is not None]
        values: list[object] = [value for value in given.values() if value is not None]
        rows = self._database.rows(
            f"SELECT {_SHORT} FROM captures{' WHERE ' if where else ''}{' AND '.join(where)} ORDER BY id DESC LIMIT ?",
            [*values, limit],
        )
        return [_row(row) for row in rows]

    def find(self, number: int) -> Row | None:
        """Return the one of that `id`, whole."""
        rows = self._database.rows(f"SELECT {_SHORT}, {_TEXTS} FROM captures WHERE id = ?", (number,))
        return _row(rows[0]) if rows else None

    def delete(self, number: int) -> bool:
        """Delete the one of that `id`; return whether there was one."""
        with self._database.change() as connection:
            gone = connection.execute("DELETE FROM captures WHERE id = ?", (number,)).rowcount > 0
        self._settle()
        return gone

    def clear(self) -> int:
        """Delete all; return how many there were."""
        with self._database.change() as connection:
            count = connection.execute("DELETE FROM captures").rowcount
        self._database.remove_damaged()
        self._database.rows("VACUUM")
        self._settle()
        return count

    def _settle(self) -> None:
        """Empty the log of changes, which holds what was there before."""
        self._database.rows("PRAGMA wal_checkpoint(TRUNCATE)")


def _values(one: Captured) -> tuple[object, ...]:
    record = one.record
    return (
        *(one.size, record.at, record.request_id[:LONGEST], record.path, record.model, record.key),
        *(record.client[:LONGEST], record.stream, record.status, record.code, record.seconds),
        *(record.spent.prompt_tokens, record.spent.completion_tokens, record.spent.finish),
        *(" ".join(one.asked_left_out), " ".join(one.answer_left_out)),
        *(json.dumps(one.headers), one.asked, one.answer),
    )


def _row(row: tuple[Any, ...]) -> Row:
    number, size, at, request_id, path, model, key, client, stream, status, code, seconds = row[:12]
    prompt, completion, finish, of_asked, of_answer = row[12:17]
    headers, asked, answer = row[17:] or ("{}", "", "")
    spent = Spent(prompt_tokens=prompt, completion_tokens=completion, finish=finish)
    record = Finished(
        *(at, request_id, path, model, key, client, bool(stream), status, code, seconds, None, None), spent
    )
    left_out = tuple(of_asked.split()), tuple(of_answer.split())
    return number, size, Captured(record, json.loads(headers), asked, left_out[0], answer, left_out[1])
