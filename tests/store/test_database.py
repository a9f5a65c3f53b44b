"""The file: made, brought up to date, refused, set aside; read while it is written, and after its writer was killed."""

from __future__ import annotations

import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from supervisor.errors import StoreTooNew, StoreUnusable
from supervisor.store import Database, Footprints
from supervisor.store.migrations import MIGRATIONS
from supervisor.system.owned import MARKER
from tests.store.observations import observation

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.db"


def plain(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")] for table in sorted(tables)}


def test_it_is_made_with_its_folder_for_its_owner_alone(path: Path) -> None:
    Database.open(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = plain(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_what_was_written_is_there_when_it_is_opened_again(path: Path) -> None:
    with Database.open(path) as database:
        Footprints(database).record(observation())
    with Database.open(path) as database:
        assert Footprints(database).find("model") == (observation(),)


def test_a_database_of_every_earlier_version_is_brought_up_to_date(path: Path, tmp_path: Path) -> None:
    Database.open(path).close()
    wanted = plain(path)
    for version in range(len(MIGRATIONS)):
        old = tmp_path / f"version-{version}.db"
        connection = plain(old)
        for number, steps in enumerate(MIGRATIONS[:version], 1):
            for step in steps:
                connection.execute(step)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.close()
        with Database.open(old) as database:
            Footprints(database).record(observation())
        connection = plain(old)
        assert columns(connection) == columns(wanted)
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        connection.close()
    wanted.close()


def test_a_database_without_tables_but_with_somebodys_data_keeps_it(path: Path) -> None:
    path.parent.mkdir()
    connection = plain(path)
    connection.execute("CREATE TABLE notes (text)")
    connection.execute("INSERT INTO notes VALUES ('mine')")
    connection.close()
    with Database.open(path) as database:
        assert database.rows("SELECT text FROM notes") == [("mine",)]


@pytest.mark.parametrize("way", [Database.open, Database.read])
def test_a_later_version_is_refused_and_left_as_it_is(path: Path, way: Callable[[Path], Database]) -> None:
    Database.open(path).close()
    connection = plain(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(StoreTooNew, match=f"version {len(MIGRATIONS) + 1}, {len(MIGRATIONS)} is known") as caught:
        way(path)
    assert caught.value.code == "store_too_new"
    assert [file.name for file in path.parent.iterdir() if "damaged" in file.name] == []


def test_a_reader_does_not_change_an_earlier_version(path: Path) -> None:
    path.parent.mkdir()
    plain(path).close()
    path.touch()
    with pytest.raises(StoreUnusable, match="start the daemon once"):
        Database.read(path)


def test_a_reader_says_that_there_is_none(path: Path) -> None:
    with pytest.raises(StoreUnusable, match=r"state\.db cannot be read"):
        Database.read(path)
    assert not path.exists()


def filled(path: Path) -> None:
    with Database.open(path) as database:
        for number in range(200):
            Footprints(database).record(observation(number))


def no_database(path: Path) -> None:
    path.write_bytes(b"This is a text, and no database at all. " * 200)


def overwritten_pages(path: Path) -> None:
    filled(path)
    content = bytearray(path.read_bytes())
    content[4096:20000] = b"\xa5" * (20000 - 4096)
    path.write_bytes(content)


def cut_off(path: Path) -> None:
    filled(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [no_database, overwritten_pages, cut_off])
def test_a_damaged_one_is_set_aside_and_a_new_one_begun(path: Path, damage: Callable[[Path], None]) -> None:
    path.parent.mkdir()
    damage(path)
    content = path.read_bytes()
    structlog.reset_defaults()
    with capture_logs() as said, Database.open(path, clock=lambda: 0.0) as database:
        assert Footprints(database).find("model") == ()
        Footprints(database).record(observation())
        assert len(Footprints(database).find("model")) == 1
    (kept,) = [file for file in path.parent.iterdir() if "damaged" in file.name]
    assert kept.read_bytes() == content
    assert [(line["event"], line["kept_as"]) for line in said] == [("store_damaged", str(kept))]


def test_two_damaged_ones_of_one_second_are_both_kept(path: Path) -> None:
    path.parent.mkdir()
    for _ in range(2):
        no_database(path)
        Database.open(path, clock=lambda: 0.0).close()
    assert len([file for file in path.parent.iterdir() if "damaged" in file.name]) == 2


def test_a_folder_in_its_place_is_said_and_nothing_is_set_aside(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StoreUnusable, match="cannot be used"):
        Database.open(path)
    assert {file.name for file in path.parent.iterdir()} == {MARKER, "state.db"}


def test_a_reader_sees_what_is_committed_while_the_writer_writes(path: Path) -> None:
    with Database.open(path) as writer, Database.read(path) as reader:
        Footprints(writer).record(observation(1))
        assert len(Footprints(reader).find("model")) == 1
        with writer.change() as connection:
            connection.execute("DELETE FROM footprints")
            assert len(Footprints(reader).find("model")) == 1  # neither waits nor sees it
        assert Footprints(reader).find("model") == ()
        with pytest.raises(sqlite3.OperationalError, match="readonly"), reader.change() as connection:
            connection.execute("DELETE FROM footprints")


def test_a_change_that_fails_leaves_nothing(path: Path) -> None:
    with Database.open(path) as database:
        statement = "INSERT INTO load_times VALUES (1, 'm', 'o', 'e', '', 1, 1)"
        with pytest.raises(sqlite3.IntegrityError), database.change() as connection:
            connection.executemany(statement, [(), ()])
        assert database.rows("SELECT * FROM load_times") == []


def test_threads_take_turns(path: Path) -> None:
    failures: list[BaseException] = []

    def work(database: Database, first: int) -> None:
        try:
            for number in range(first, first + 25):
                Footprints(database).record(observation(number))
                Footprints(database).find("model")
        except BaseException as error:  # noqa: BLE001 - reported by the assertion below
            failures.append(error)

    with Database.open(path) as database:
        threads = [threading.Thread(target=work, args=(database, 100 * n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(Footprints(database).find("model")) == 100


WRITER = """
import itertools, sys
from pathlib import Path
from supervisor.store import Database, Footprints
from tests.store.observations import observation

with Database.open(Path(sys.argv[1])) as database:
    for number in itertools.count():
        Footprints(database).record(observation(number % 500, at=float(number)))
        print(number, flush=True)
"""


def test_a_killed_writer_leaves_a_whole_database(path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, cwd=ROOT, text=True, bufsize=1
    )
    assert writer.stdout is not None
    try:
        for line in writer.stdout:
            if int(line) >= 60:
                break
        with Database.read(path) as reader:  # of another process, while it writes
            assert len(Footprints(reader).find("model")) >= 60
    finally:
        writer.kill()
        rest = writer.stdout.read().split()
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL
    written = int(rest[-1]) if rest else 60
    with Database.read(path) as reader:  # before anybody has put it in order
        assert reader.rows("PRAGMA integrity_check") == [("ok",)]
    with Database.open(path) as database:
        found = Footprints(database).find("model")
        assert [one.at for one in found] == sorted((one.at for one in found), reverse=True)
        assert found[0].at in {float(written), float(written + 1)}
    assert [file.name for file in path.parent.iterdir() if "damaged" in file.name] == []
