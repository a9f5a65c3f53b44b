"""Capturing beside the loop: room is bounded, what finds none is counted, and a broken file harms no request."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from supervisor.api.captures import lines
from supervisor.core.history.records import Finished, Spent
from supervisor.core.requests.captured import Captured, CaptureRules, Heard
from supervisor.errors import CaptureIncomplete, RecordNotFound, StoreUnusable
from supervisor.service.captures import MOST_HELD, Captures
from supervisor.store.captures import CaptureTable
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio

RULES = CaptureRules(("*",))


def heard(number: int = 1, path: str = "/v1/chat/completions", left_out: tuple[str, ...] = ()) -> Heard:
    told = (float(number), f"req_{number}", path, "m", None, "agent", False, 200, None, 1.0, 0.1, 0.2)
    return Heard(Finished(*told, Spent()), [], b'{"a": 1}', left_out, b'{"b": 2}', False, "application/json")


def captures_in(folder: Path, clock: Callable[[], float] = lambda: 0.0) -> Captures:
    return Captures(folder / "captures.db", lambda: RULES, clock)


async def test_there_is_no_file_before_there_is_something_to_write(tmp_path: Path) -> None:
    captures = captures_in(tmp_path)
    assert await captures.newest(10, None, None, None) == []
    assert await captures.clear() == 0
    with pytest.raises(RecordNotFound):
        await captures.find(1)
    assert not os.listdir(tmp_path)
    captures.keep(heard(), 0)
    assert [one.record.request_id for _, _, one in await captures.newest(10, None, None, None)] == ["req_1"]
    captures.close()
    assert (tmp_path / "captures.db").exists()


async def test_close_writes_what_waits(tmp_path: Path) -> None:
    captures = captures_in(tmp_path)
    for number in range(20):
        captures.keep(heard(number), 0)
    captures.close()
    table = CaptureTable.open(tmp_path / "captures.db")
    assert len(table.newest(100)) == 20
    table.close()


class _Standing(CaptureTable):
    """One that writes nothing until its gate is open."""

    gate = threading.Event()

    def add(self, one: Captured, max_bytes: int, max_records: int) -> None:
        assert self.gate.wait(PATIENCE)
        super().add(one, max_bytes, max_records)


async def test_room_is_bounded_while_the_disk_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.service.captures.CaptureTable", _Standing)
    moments = [0.0]
    captures = captures_in(tmp_path, lambda: moments[0])
    half = MOST_HELD // 2
    for _ in range(2):
        assert captures.take(half)
        captures.keep(heard(), half)
    with capture_logs() as logs:
        assert not captures.take(1)
        assert not captures.take(1)
        moments[0] = 4000.0
        assert not captures.take(1)
    assert [(one["event"], one["requests"]) for one in logs] == [("captures_lost", 1), ("captures_lost", 3)]
    assert captures.lost == 3
    _Standing.gate.set()
    await captures.newest(1, None, None, None)  # behind what was to be written
    assert captures.take(MOST_HELD)
    captures.close()


async def test_a_file_that_cannot_be_written_is_told_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "captures.db").mkdir()
    captures = captures_in(tmp_path)
    with capture_logs() as logs:
        captures.keep(heard(), 0)
        with pytest.raises(StoreUnusable):
            await captures.newest(1, None, None, None)
    assert [one["event"] for one in logs] == ["capture_unwritten"]
    captures.close()


async def test_what_is_not_whole_or_has_no_path_is_not_sent_again(tmp_path: Path) -> None:
    captures = captures_in(tmp_path)
    captures.keep(heard(1, left_out=("texts", "media")), 0)
    captures.keep(heard(2, path="/upstream/MODEL/*"), 0)
    captures.keep(heard(3, path="/upstream/MODEL/v1/chat/completions"), 0)
    with pytest.raises(CaptureIncomplete, match="texts and media were not kept"):
        await captures.replayable(1)
    with pytest.raises(CaptureIncomplete, match="no path that can be asked again"):
        await captures.replayable(2)
    assert (await captures.replayable(3)).asked == '{"a": 1}'
    captures.close()


async def test_a_question_waits_for_what_was_captured_before(tmp_path: Path) -> None:
    captures = captures_in(tmp_path)
    for number in range(1, 31):
        captures.keep(heard(number), 0)
        found = await asyncio.gather(captures.find(number), captures.newest(1, None, None, None))
        assert found[0][2].record.request_id == f"req_{number}"
    captures.close()


async def test_an_export_goes_on_where_one_has_made_room_meanwhile(tmp_path: Path) -> None:
    captures = captures_in(tmp_path)
    for number in (1, 2, 3):
        captures.keep(heard(number), 0)
    export = lines(captures, None, None)
    found = [await anext(export)]
    await captures.delete(2)
    found += [line async for line in export]
    captures.close()
    assert [json.loads(line)["request_id"] for line in found] == ["req_3", "req_1"]
