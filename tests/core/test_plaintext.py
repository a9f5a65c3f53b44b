"""Foreign text that is shown: nothing of it is obeyed."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from supervisor.core.text.plaintext import INSTEAD, is_name, is_text, one_line, plain

OBEYED = [
    *("\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "\x1bc", "\x00", "\x07", "\x08", "\x7f", "\x0e"),
    *("\x85", "\u2028", "\u202e"),
]


@pytest.mark.parametrize("text", OBEYED)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    for shown in (plain(f"a{text}b"), one_line(f"a{text}b")):
        assert shown[0] == "a"
        assert shown[-1] == "b"
        assert INSTEAD in shown
        assert not any(unicodedata.category(char) in {"Cc", "Zl", "Zp"} for char in shown)


def test_every_control_character_and_no_letter_is_replaced() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        kind = unicodedata.category(char)
        if char in "\t\n":
            assert plain(char) == char
            assert one_line(char) != char
        elif kind in {"Cc", "Cs", "Zl", "Zp"}:
            assert plain(char) == one_line(char) == INSTEAD, code
        elif kind != "Cf":
            assert plain(char) == one_line(char) == char, code


def test_lines_stay_lines_or_become_one() -> None:
    assert plain("a\r\nb\tc\rd\n") == f"a\nb\tc{INSTEAD}d\n"
    assert one_line("a\r\nb\tc\n2026-01-01 [info] forged") == "a\\nb\\tc\\n2026-01-01 [info] forged"


@pytest.mark.parametrize(("text", "named"), [("a", True), ("ä b", True), ("", False), (" ", False), ("a\n", False)])
def test_what_can_name_something_can_be_seen(text: str, named: bool) -> None:
    assert is_name(text) is named
    assert not is_name(f"{text}\udcff")
    assert not is_text(f"{text}\udcff")
