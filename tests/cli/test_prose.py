"""Lines end between words, whatever the pieces in which a text arrives."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli.prose import WordWrap

BACK = re.compile(r"\x1b\[(\d+)D\x1b\[K\n")


def screen(shown: str, width: int) -> list[str]:
    """What a terminal of that many columns shows, one that breaks lines by itself only where it must."""
    lines = [""]
    for part in re.findall(r"\x1b\[\d+D|\x1b\[K|\n|[^\x1b\n]", shown):
        if part == "\n":
            lines.append("")
        elif part == "\x1b[K":
            pass
        elif part.startswith("\x1b"):
            lines[-1] = lines[-1][: len(lines[-1]) - int(part[2:-1])]
        else:
            lines[-1] += part
    assert all(len(line) < width for line in lines), "the last column stays empty"
    return lines


def wrapped(text: str, width: int, piece: int) -> list[str]:
    wrap = WordWrap(width)
    return screen("".join(wrap.add(text[at : at + piece]) for at in range(0, len(text), piece)), width)


TEXT = "A client that leaves frees its slot within a quarter of a second, streaming or not."


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 100])
def test_words_stay_whole(piece: int) -> None:
    lines = wrapped(TEXT, 20, piece)
    assert " ".join(line.strip() for line in lines) == TEXT
    assert len(lines) > 4


def test_a_word_longer_than_a_line_is_broken_where_the_line_ends() -> None:
    assert wrapped("see aaaaaaaaaaaaaaaaaaaaaaaaa now", 11, 1) == ["see ", "aaaaaaaaaa", "aaaaaaaaaa", "aaaaa now"]


def test_characters_of_two_columns_may_be_parted_anywhere() -> None:
    wrap = WordWrap(8)
    assert wrap.add("模型在这里加载") == "模型在\n这里加\n载"


def test_line_breaks_of_the_text_stay() -> None:
    assert wrapped("one\n\n- two\n", 20, 1) == ["one", "", "- two", ""]


@given(st.text(alphabet="ab \n", max_size=200), st.integers(3, 30), st.integers(1, 9))
def test_nothing_but_spaces_at_line_ends_is_lost(text: str, width: int, piece: int) -> None:
    assert "".join("".join(wrapped(text, width, piece)).split()) == "".join(text.split())
