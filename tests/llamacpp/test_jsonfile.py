"""Small JSON files of our own, which anybody may have damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.llamacpp.jsonfile import number, read_object, text, write_object


def test_an_object_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.json"
    write_object(path, {"a": 1})
    write_object(path, {"b": [None, "é"]})
    assert read_object(path) == {"b": [None, "é"]}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"[1]", b"5", b'"x"', b"null", b"true", b"\xff", b"[" * 100_000])
def test_what_holds_no_object_holds_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.json"
    assert read_object(path) == {}
    path.write_bytes(content)
    assert read_object(path) == {}


def test_values_are_taken_as_what_they_are() -> None:
    values: list[object] = ["x", "", 5, 0, True, 1.5, None, []]
    assert [text(value) for value in values] == ["x", "", None, None, None, None, None, None]
    assert [number(value) for value in values] == [None, None, 5, 0, None, None, None, None]
