"""Tables: as wide as they are where no screen limits them, else broken between words, else blocks."""

from __future__ import annotations

import pytest

from supervisor.cli.prose import clipped
from supervisor.cli.tables import columns_of, laid_out, wrapped
from tests.cli.conftest import Cli
from tests.cli.test_terminal import Terminal
from tests.fakes.fake_daemon import FakeDaemon, model

HEADERS = ("NAME", "WHY", "SIZE")
ROWS = [("a", "the only one that fits on this machine", "1.0 GiB"), ("quite-long-name", "x", "12 GiB")]


def texts(width: int | None) -> list[str]:
    return [line.text for line in laid_out(HEADERS, ROWS, width)]


def test_without_a_width_a_row_is_a_line() -> None:
    assert texts(None) == texts(200) == [
        "NAME             WHY                                     SIZE",
        "a                the only one that fits on this machine  1.0 GiB",
        "quite-long-name  x                                       12 GiB",
    ]  # fmt: skip
    assert [line.is_head for line in laid_out(HEADERS, ROWS, None)] == [True, False, False]


def test_a_narrower_one_is_broken_between_words() -> None:
    assert texts(40) == [
        "NAME             WHY             SIZE",
        "a                the only one    1.0 GiB",
        "                 that fits on",
        "                 this machine",
        "quite-long-name  x               12 GiB",
    ]


def test_a_very_narrow_one_becomes_blocks() -> None:
    assert texts(28) == [
        "a",
        "  WHY   the only one that",
        "        fits on this machine",
        "  SIZE  1.0 GiB",
        "quite-long-name",
        "  WHY   x",
        "  SIZE  12 GiB",
    ]


@pytest.mark.parametrize("width", range(28, 90))
def test_no_line_is_wider_and_no_word_is_broken(width: int) -> None:
    lines = texts(width)
    assert all(columns_of(line) <= width for line in lines)
    words = " ".join(lines).split()
    assert all(words.count(word) >= 1 for row in ROWS for cell in row for word in cell.split())


def test_wide_letters_take_two_columns_and_foreign_ones_do_nothing() -> None:
    lines = [line.text for line in laid_out(("A", "B"), [("模型", "x"), ("e\x1b[2J", "y")], 40)]
    assert lines == ["A      B", "模型   x", "e�[2J  y"]
    assert wrapped("one two\nthree", 5) == ["one", "two", "three"]
    assert (clipped("模型模型", 5), clipped("abc", 3), clipped("abcd", 3), clipped("abc", 0)) == (
        "模型…",
        "abc",
        "ab…",
        "",
    )


def test_a_table_fits_the_terminal(cli: Cli, daemon: FakeDaemon) -> None:
    error = {"code": "model_load_failed", "message": "x"}
    daemon.models = {"a": model("a", "failed", error=error), "b": model("b", "ready", n_ctx=4096)}
    for width in (40, 60, 100):
        with Terminal(cli, "ps", COLUMNS=str(width)) as terminal:
            assert terminal.end() == 0
        lines = terminal.shown.replace("\r", "").replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
        assert max(map(len, lines)) < width, lines
        assert "model_load_failed" in terminal.shown
