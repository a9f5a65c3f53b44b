"""The ring of captured requests: bounded in bytes and in number, for its owner alone, and forgetful."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from supervisor.core.history.records import Finished, Spent
from supervisor.core.requests.captured import Captured
from supervisor.store.captures import CaptureTable

MANY = 1 << 40


def one(
    number: int = 1,
    *,
    asked: str = '{"a": 1}',
    answer: str = '{"b": 2}',
    model: str = "m",
    key: str | None = "bot",
    left_out: tuple[str, ...] = (),
) -> Captured:
    spent = Spent(prompt_tokens=3, completion_tokens=4, finish="stop")
    told = (float(number), f"req_{number}", "/v1/chat/completions", model, key, "agent", True, 200, None, 1.5)
    return Captured(Finished(*told, None, None, spent), {"accept": "*/*"}, asked, left_out, answer, ())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "captures.db"


def test_what_is_written_is_read(path: Path) -> None:
    table = CaptureTable.open(path)
    whole = one(left_out=("media", "end"))
    table.add(whole, MANY, 100)
    table.close()
    table = CaptureTable.open(path)
    (short,) = table.newest(10)
    number, size, brief = short
    assert (number, size) == (1, whole.size)
    assert brief.asked == brief.answer == ""
    assert (brief.record, brief.asked_left_out) == (whole.record, ("media", "end"))
    assert table.find(1) == (1, whole.size, whole)
    assert table.find(2) is None
    table.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_oldest_go_where_there_are_too_many_or_too_much() -> None:
    table = CaptureTable.empty()
    for number in range(1, 8):
        table.add(one(number), MANY, 3)
    assert [id for id, _, _ in table.newest(10)] == [7, 6, 5]
    large = one(8, asked="x" * 1000)
    table.add(large, large.size + 1, 3)
    assert [id for id, _, _ in table.newest(10)] == [8]
    table.add(one(9), large.size + one().size, 3)
    assert [id for id, _, _ in table.newest(10)] == [9, 8]
    table.add(large, 10, 3)
    assert table.newest(10) == []
    table.close()


def test_the_file_does_not_grow_beyond_what_it_may_hold(path: Path) -> None:
    table = CaptureTable.open(path)
    for number in range(200):
        table.add(one(number, answer="x" * 50_000), 500_000, 1000)
    table.close()
    assert len("x" * 50_000) < path.stat().st_size < 1_000_000


def test_filters_and_pages() -> None:
    table = CaptureTable.empty()
    for number in range(1, 7):
        table.add(one(number, model="a" if number % 2 else "b", key="bot" if number < 4 else None), MANY, 100)
    assert [id for id, _, _ in table.newest(10, model="a")] == [5, 3, 1]
    assert [id for id, _, _ in table.newest(10, key="bot")] == [3, 2, 1]
    assert [id for id, _, _ in table.newest(2, before=5)] == [4, 3]
    table.close()


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_deleted_is_in_no_file_any_more(path: Path, whole: bool) -> None:
    table = CaptureTable.open(path)
    table.add(one(asked="the-word"), MANY, 100)
    table.add(one(2), MANY, 100)
    assert any(b"the-word" in file.read_bytes() for file in path.parent.glob("captures.db*"))
    if whole:
        assert table.clear() == 2
    else:
        assert table.delete(1)
        assert not table.delete(1)
    assert not any(b"the-word" in file.read_bytes() for file in path.parent.glob("captures.db*"))
    assert [id for id, _, _ in table.newest(10)] == ([] if whole else [2])
    table.close()


def test_no_copy_of_a_damaged_file_outlives_what_was_deleted(path: Path, tmp_path: Path) -> None:
    table = CaptureTable.open(path)
    table.add(one(asked='{"a": "my secret"}'), MANY, 100)
    table.close()
    content = path.read_bytes()
    path.write_bytes(b"no database" + content[11:])
    table = CaptureTable.open(path)
    (copy,) = tmp_path.glob("captures.db.damaged-*")
    other = tmp_path / "copy"
    os.link(copy, other)
    assert table.clear() == 0
    table.close()
    assert list(tmp_path.glob("captures.db.damaged-*")) == []
    assert set(other.read_bytes()) == {0}, "overwritten, not only without a name"
