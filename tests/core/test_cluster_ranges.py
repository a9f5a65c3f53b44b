"""Ranges of bytes, as a request asks for them and as an answer tells them."""

from __future__ import annotations

import pytest

from supervisor.core.cluster.ranges import NotSatisfiable, Range, range_asked, range_told


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (None, None),
        ("bytes=0-0", (0, 0)),
        ("bytes=0-9", (0, 9)),
        ("bytes=3-", (3, 9)),
        ("bytes=3-100", (3, 9)),
        ("bytes=9-9", (9, 9)),
        ("bytes=-1", (9, 9)),
        ("bytes=-10", (0, 9)),
        ("bytes=-11", (0, 9)),
        (" bytes=1-2 ", (1, 2)),
        *[(text, None) for text in ("", "bytes", "bytes=", "bytes=-", "bytes=2-1", "bytes=a-b", "bytes=0-1,3-4")],
        *[(text, None) for text in ("items=0-1", "bytes=0x1-2", "bytes=+1-2", "bytes=1--2", "bytes=٣-4", "Bytes=1-2")],
        ("bytes=" + "9" * 20 + "-", None),
    ],
)
def test_what_is_asked_for(header: str | None, wanted: tuple[int, int] | None) -> None:
    found = range_asked(header, 10)
    assert (None if found is None else (found.first, found.last)) == wanted
    if found is not None:
        assert found.size == 10
        assert range_asked(found.asked(), 10) == found
        assert range_told(found.told()) == found


@pytest.mark.parametrize(
    ("header", "size"), [("bytes=10-", 10), ("bytes=11-12", 10), ("bytes=-0", 10), ("bytes=0-", 0)]
)
def test_bytes_behind_the_end_are_none(header: str, size: int) -> None:
    with pytest.raises(NotSatisfiable):
        range_asked(header, size)


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("bytes 0-9/10", Range(0, 9, 10)),
        ("bytes 3-3/10", Range(3, 3, 10)),
        *[(text, None) for text in ("", "bytes */10", "bytes 0-9/*", "bytes 0-10/10", "bytes 5-4/10", "items 0-9/10")],
        *[(text, None) for text in ("bytes 0-9/10, bytes 0-9/10", "bytes -1-9/10", "bytes 0-9/" + "9" * 20)],
    ],
)
def test_what_is_told(header: str, wanted: Range | None) -> None:
    assert range_told(header) == wanted


def test_the_length_of_a_range() -> None:
    assert Range(3, 3, 10).length == 1
    assert Range(0, 9, 10).length == 10
