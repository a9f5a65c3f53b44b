"""The log of an engine: ring, file, followers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from supervisor.engines.log import OutputLog

pytestmark = pytest.mark.anyio


@pytest.fixture
def log(tmp_path: Path) -> Iterator[OutputLog]:
    log = OutputLog(tmp_path / "logs" / "model.log", ring_lines=3, max_bytes=40, backups=2)
    yield log
    log.close()


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


async def test_the_ring_keeps_the_newest_lines(log: OutputLog) -> None:
    for number in range(5):
        log.write(b"line %d" % number)
    assert log.tail(2) == ("line 3", "line 4")
    assert log.tail(99) == ("line 2", "line 3", "line 4")
    assert log.tail(0) == ()
    assert log.written == 5
    log.close()


async def test_a_note_of_the_daemon_is_told_where_lines_are_but_is_none_of_the_engine(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log")
    with log.subscribe() as lines:
        log.write(b"before")
        log.note("a note\nof two lines\x1b[2J")
        log.write(b"after")
        told = ("before", "a note\\nof two lines�[2J", "after")
        assert (await anext(lines), await anext(lines), await anext(lines)) == told
    assert log.tail(9) == told
    assert log.said(9) == ("before", "after")
    assert (log.said(1), log.said(0), log.written) == (("after",), (), 2)
    log.close()
    assert tuple(read(tmp_path / "log").splitlines()) == told


async def test_the_file_has_every_line_at_once_and_is_rotated(log: OutputLog, tmp_path: Path) -> None:
    for number in range(10, 28):
        log.write(b"line %d" % number)
    names = sorted(path.name for path in (tmp_path / "logs").glob("*"))
    assert names == ["model.log", "model.log.1", "model.log.2"]
    texts = [read(tmp_path / "logs" / name) for name in reversed(names)]
    assert "".join(texts).split("\n")[:-1] == [f"line {number}" for number in range(15, 28)]
    assert all(len(text) <= 40 for text in texts)
    log.close()


async def test_a_new_log_goes_on_where_the_old_one_ended(tmp_path: Path) -> None:
    for line in (b"yesterday", b"today"):
        log = OutputLog(tmp_path / "log")
        log.write(line)
        log.close()
    assert read(tmp_path / "log") == "yesterday\ntoday\n"


async def test_a_log_at_rest_holds_no_file_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = OutputLog(path, max_bytes=20)
    before = psutil.Process().num_fds()
    for line in (b"one", b"two", b"the third line"):
        log.write(line)
        assert psutil.Process().num_fds() == before + 1
        log.rest()
        assert psutil.Process().num_fds() == before
    assert path.read_text() == "the third line\n"
    assert path.with_name("log.1").read_text() == "one\ntwo\n"
    log.close()


async def test_without_a_path_there_is_no_file() -> None:
    log = OutputLog(None)
    log.write(b"heard")
    log.close()
    assert (log.tail(1), log.file_error) == (("heard",), None)


async def test_damaged_text_and_control_characters_do_no_harm(log: OutputLog) -> None:
    log.write(b"\x1b[2J\xff\tt\xc3\xbcr\x07")
    assert log.tail(1) == ("�[2J�\ttür�",)
    log.close()


async def test_long_lines_are_cut_in_memory_only(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log")
    log.write(b"x" * 100_000)
    log.close()
    assert len(log.tail(1)[0]) < 10_000
    assert len(read(tmp_path / "log")) == 100_001


async def test_a_file_that_cannot_be_written_costs_only_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    log = OutputLog(tmp_path / "file" / "log")
    log.write(b"still heard")
    assert log.tail(1) == ("still heard",)
    assert isinstance(log.file_error, OSError)
    log.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/full is Linux's")
async def test_a_full_disk_is_no_reason_to_fall_silent() -> None:
    log = OutputLog(Path("/dev/full"))
    log.write(b"one")
    log.write(b"two")
    assert log.tail(2) == ("one", "two")
    assert log.file_error is not None
    log.close()


async def test_a_file_that_can_be_written_again_goes_on_after_the_engine(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    log = OutputLog(tmp_path / "logs" / "log")
    log.write(b"lost")
    (tmp_path / "logs").unlink()
    log.rest()
    log.write(b"kept")
    log.close()
    assert read(tmp_path / "logs" / "log") == "kept\n"


async def test_followers_get_what_was_and_what_comes(log: OutputLog) -> None:
    log.write(b"old")
    log.write(b"older news")
    with log.subscribe(last=1) as follower:
        lines = aiter(follower)
        assert await anext(lines) == "older news"
        waiting = asyncio.ensure_future(anext(lines))
        log.write(b"new")
        assert await waiting == "new"
        log.close()
        assert [line async for line in follower] == []


async def test_a_slow_follower_loses_lines_and_is_told(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log")
    with log.subscribe() as follower:
        for number in range(1500):
            log.write(b"%d" % number)
        first = [await anext(follower) for _ in range(1000)]
        log.write(b"again")
        rest = [await anext(follower) for _ in range(2)]
    assert first == [str(number) for number in range(1000)]
    assert rest == ["[500 lines skipped: the reader was too slow]", "again"]
    log.close()


async def test_a_follower_that_leaves_is_forgotten(log: OutputLog) -> None:
    with log.subscribe() as follower:
        pass
    log.write(b"to nobody")
    assert [line async for line in follower] == []
    log.close()


async def test_following_a_closed_log_ends_at_once(log: OutputLog, tmp_path: Path) -> None:
    log.write(b"last")
    log.close()
    with log.subscribe(last=5) as follower:
        assert [line async for line in follower] == ["last"]
    log.write(b"after the end")
    assert log.tail(1) == ("after the end",)
    assert read(tmp_path / "logs" / "model.log") == "last\n"


async def test_a_follower_may_lag_behind_by_so_many_characters(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log")
    with log.subscribe() as follower:
        for _ in range(100):
            log.write(b"x" * 100_000)
        log.close()
        held = [line async for line in follower]
    assert sum(map(len, held)) < 2 << 20
    assert "lines skipped" in held[-1]
