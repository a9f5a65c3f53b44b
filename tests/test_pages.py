"""The parts of pages that are made from the code are as the code makes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.made import Made
from tests.support.pages import MADE, write

NAMES = [f"{part.path.name}-{number}" for number, part in enumerate(MADE)]


@pytest.fixture(scope="module", params=MADE, ids=NAMES)
def part(request: pytest.FixtureRequest) -> Made:
    """A part, made once for all tests: some take seconds."""
    found: Made = request.param
    made = found.make()
    return replace(found, make=lambda: made)


def test_what_is_made_from_the_code_is_new(part: Made) -> None:
    assert part.shown() == part.make(), ".venv/bin/python -m tests.support.pages writes it anew"


def test_a_stale_page_is_noticed_and_written_anew(part: Made, tmp_path: Path) -> None:
    lines = part.shown().splitlines(keepends=True)
    old = "".join([*lines[: len(lines) // 2], *lines[len(lines) // 2 + 1 :]])
    text = part.path.read_text(encoding="utf-8")
    copy = replace(part, path=tmp_path / part.path.name)
    copy.path.write_text(text.replace(part.shown(), old), encoding="utf-8")
    assert copy.is_stale()
    assert write([copy]) == [copy.path]
    assert copy.path.read_text(encoding="utf-8") == text
    assert write([copy]) == []


def test_a_page_without_a_place_is_an_error(part: Made, tmp_path: Path) -> None:
    empty = replace(part, path=tmp_path / "page.md")
    empty.path.write_text("# A page\n", encoding="utf-8")
    with pytest.raises(LookupError, match="has no place"):
        write([empty])
