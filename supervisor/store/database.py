"""Open the SQLite file, bring it up to date, and set it aside when it is damaged.

Write-ahead logging lets others read while the daemon writes, and a killed writer leaves a file that is whole: what was
not committed is not in it.
"""

from __future__ import annotations

import contextlib
import glob
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from supervisor.errors import StoreTooNew, StoreUnusable
from supervisor.store.migrations import MIGRATIONS, Migrations
from supervisor.system.owned import keep_newest, own_folder

_log = structlog.get_logger()

_BUSY_S = 5.0
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BESIDE = ("", "-wal", "-shm")
_DAMAGED_KEPT = 3
_PIECE = 1 << 20  # bytes


class Database:
    """An open database. Statements of several threads wait for one another.

    path: of its file, where it has one.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path | None = None) -> None:
        self._connection = connection
        self._path = path
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path, clock: Callable[[], float] = time.time, migrations: Migrations = MIGRATIONS) -> Self:
        """Open it for writing, by one process; create it where it is missing, and anew where it is damaged.

        Raises StoreTooNew for one that a later version made, StoreUnusable where it cannot be written to.
        """
        try:
            own_folder(path.parent)
            path.touch(mode=0o600)
            try:
                return cls(_opened(path, migrations), path)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                _log.warning("store_damaged", path=str(path), reason=str(error), kept_as=_set_aside(path, clock()))
            path.touch(mode=0o600)
            return cls(_opened(path, migrations), path)
        except (sqlite3.Error, OSError) as error:
            raise StoreUnusable(
                f"{path} cannot be used: {error}; check that it and its folder belong to you and can be written to, "
                "and that the disk has room"
            ) from error

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open it for reading only, while another process may write. Raise StoreTooNew, StoreUnusable."""
        try:
            connection = _connect(f"{path.absolute().as_uri()}?mode=ro")
        except sqlite3.Error as error:
            raise StoreUnusable(f"{path} cannot be read: {error}") from error
        try:
            if _version(connection, path, MIGRATIONS) < len(MIGRATIONS):
                raise StoreUnusable(
                    f"{path} is of an earlier version; start the daemon once, which brings it up to date"
                )
            return cls(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise StoreUnusable(f"{path} cannot be read: {error}") from error
            raise

    @classmethod
    def empty(cls, migrations: Migrations = MIGRATIONS) -> Self:
        """Return a database in memory, which nobody else sees and which ends with its last user."""
        connection = _connect("file::memory:")
        _migrate(connection, Path(":memory:"), migrations)
        return cls(connection)

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT."""
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    @contextlib.contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction: all of it or, if an error leaves the block, nothing."""
        with self._lock, _transaction(self._connection):
            yield self._connection

    def remove_damaged(self) -> None:
        """Overwrite and remove what was set aside of the file before: what is deleted must not stay in a copy."""
        for one in () if self._path is None else _damaged(self._path):
            with contextlib.suppress(OSError):
                _erase(one)

    def close(self) -> None:
        """Close the file. Calling it again does nothing."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _opened(path: Path, migrations: Migrations) -> sqlite3.Connection:
    connection = _connect(f"{path.absolute().as_uri()}?mode=rwc")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise _damage(found)
        _migrate(connection, path, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)


def _version(connection: sqlite3.Connection, path: Path, migrations: Migrations) -> int:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > len(migrations):
        raise StoreTooNew(
            f"{path} was made by a later version of this program (version {found}, {len(migrations)} is known); "
            "use that version, or move the file away to begin a new one"
        )
    return found


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Migrations) -> None:
    with _transaction(connection):
        before = _version(connection, path, migrations)
        for number, steps in enumerate(migrations[before:], before + 1):
            for step in steps:
                connection.execute(step)
            connection.execute(f"PRAGMA user_version = {number}")


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _damage(reason: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(reason)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether the file itself is at fault, rather than its rights, the disk, or another process."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def _set_aside(path: Path, now: float) -> str:
    """Rename the file, with those that belong to it, and return its new name."""
    base = f"{path}.damaged-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}"
    target, number = base, 1
    while Path(target).exists():
        number += 1
        target = f"{base}-{number}"
    for suffix in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{target}{suffix}")
    keep_newest(_damaged(path), _DAMAGED_KEPT * len(_BESIDE))
    return target


def _erase(path: Path) -> None:
    left = path.stat().st_size
    with path.open("r+b") as file:
        while left > 0:
            left -= file.write(bytes(min(left, _PIECE)))
    path.unlink()


def _damaged(path: Path) -> list[Path]:
    """Return the files that were set aside."""
    return list(path.parent.glob(f"{glob.escape(path.name)}.damaged-*"))
