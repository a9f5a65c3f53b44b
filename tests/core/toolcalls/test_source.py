"""Text that arrives in pieces: positions, bounds of what is read ahead, and going back."""

from __future__ import annotations

import re

import pytest

from supervisor.core.toolcalls.source import Literals, Source, Wait, finished, need, one_of, run_of, take, until

WORD = re.compile(r"\w*")


def fed(reader: Wait[str | None], src: Source, text: str) -> str | None:
    """The reader's result where the text comes by the character, or "waits"."""
    pieces = iter(text)
    while True:
        try:
            next(reader)
        except StopIteration as stop:
            result: str | None = stop.value
            return result
        piece = next(pieces, "")
        if not piece:
            return "waits"
        src.feed(piece)


@pytest.mark.parametrize(
    ("text", "found"),
    [("abc ", "abc"), ("abcd ", "abcd"), ("abcde ", "abcde"), ("abcdefg ", "abcde"), ("abcde", "abcde")],
)
def test_a_run_ends_one_character_behind_its_limit(text: str, found: str) -> None:
    src = Source(text, closed=True)
    assert finished(run_of(src, WORD, 4)) == found
    assert src.pos == len(found)
    arriving = Source()
    assert fed(run_of(arriving, WORD, 4), arriving, text) == found
    assert arriving.pos == len(found)


@pytest.mark.parametrize(("text", "found"), [("abcd<", "abcd"), ("abcde<", None), ("abc", None), ("<", "")])
def test_text_up_to_a_character_has_a_limit(text: str, found: str | None) -> None:
    src = Source(text, closed=True)
    assert finished(until(src, re.compile("<"), 4)) == found


def test_literals_the_longest_counts_and_none_moves_the_position() -> None:
    literals = Literals(["<a", "<ab>", "x"])
    src = Source()
    assert fed(one_of(src, literals), src, "<ab") == "waits"
    src.feed(">")
    assert finished(one_of(src, literals)) == "<ab>"
    assert src.pos == 0
    src = Source("<ab", closed=True)
    assert finished(one_of(src, literals)) == "<a"
    assert finished(take(src, "<b")) is False
    assert finished(take(src, "<a")) is True
    assert src.pos == 2
    assert finished(need(src, 1)) is True
    assert finished(need(src, 2)) is False


def test_what_was_read_can_be_gone_back_to_until_it_is_forgotten() -> None:
    src = Source()
    text = "".join(f"{number:05}" for number in range(4000))
    for start in range(0, len(text), 7):
        src.feed(text[start : start + 7])
        src.pos = src.end
    assert src.slice(10, 20) == text[10:20]
    src.seek(5)
    assert src.ahead(5) == "00001"
    src.pos = src.end
    src.forget(src.end)
    src.feed("abc")
    src.seek(3)
    assert src.pos > 3
    assert src.ahead(3) in text + "abc"
    assert src.slice(src.end - 3, src.end) == "abc"


def test_doubt_and_patience() -> None:
    src = Source("x" * 100, closed=True)
    src.pos = 50
    assert src.certain() == 50
    src.doubt = 20
    assert src.certain() == 20
    assert src.is_patient()
    src.doubted = 64 * 1024 + 4 * 50
    assert src.is_patient()
    src.doubted += 1
    assert not src.is_patient()
    assert not src.at_end()
    src.pos = 100
    assert src.at_end()
