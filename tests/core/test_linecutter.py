"""What a program writes becomes lines; a flood of them costs next to nothing."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.text.linecutter import LONGEST_LINE, LineCutter

READ = 1 << 16  # what a pipe holds


def cutter() -> tuple[LineCutter, list[bytes]]:
    lines: list[bytes] = []
    return LineCutter(lines.append), lines


def test_lines_however_they_are_cut() -> None:
    lines, got = cutter()
    for piece in (b"a\r", b"\nb", b"c\n\n", b"d"):
        lines.feed(piece, 0.0)
    lines.end()
    assert got == [b"a", b"bc", b"", b"d"]


def test_a_long_line_comes_in_pieces() -> None:
    lines, got = cutter()
    for _ in range(2 * LONGEST_LINE // READ):
        lines.feed(b"x" * READ, 0.0)
    assert [len(piece) for piece in got] == [LONGEST_LINE, LONGEST_LINE]


def test_a_flood_is_left_out_but_for_its_end() -> None:
    lines, got = cutter()
    lines.feed(b"it begins\n", 0.0)
    for _ in range(1000):
        lines.feed(b"\n" * READ, 0.0)
    lines.feed(b"\n" * READ + b"failed to parse grammar\nfar", 0.0)
    assert got == [b"it begins"]
    lines.feed(b"ewell\n", 3600.0)
    said = [line for line in got if line]
    assert said[0] == b"it begins"
    assert said[1].endswith(b"lines left out: they came too fast]")
    assert said[2:] == [b"failed to parse grammar", b"farewell"]
    assert int(said[1].split()[0][1:]) + got.count(b"") == 1001 * READ


def test_the_last_words_of_a_flood_are_told_at_the_end() -> None:
    lines, got = cutter()
    lines.feed(b"\n" * READ + b"error: out of memory\n", 0.0)
    assert got == []
    lines.end()
    assert got[-1] == b"error: out of memory"


def test_one_line_without_end_is_a_flood_too() -> None:
    lines, got = cutter()
    for _ in range(1000):
        lines.feed(b"x" * READ, 0.0)
    assert sum(map(len, got)) < 8 << 20
    lines.feed(b"\n" * 100, 3600.0)
    lines.feed(b"it is well again\n", 3600.0)
    assert got[-1] == b"it is well again"


def test_who_writes_at_an_ordinary_rate_is_heard_whole() -> None:
    lines, got = cutter()
    for second in range(100):
        lines.feed(b"a line as engines write them\n" * 1000, float(second))
    assert got == [b"a line as engines write them"] * 100_000


CUTS = st.lists(st.one_of(st.integers(1, 9), st.integers(1, 5_000)), min_size=1, max_size=20)
PAUSES = st.lists(st.sampled_from([0.0, 0.0, 0.001, 0.5]), min_size=1, max_size=5)


@given(first=st.sampled_from([0, 10_000, 19_000, 19_800, 20_000]), cuts=CUTS, pauses=PAUSES)
@settings(max_examples=50)
def test_of_a_flood_in_any_pieces_each_line_is_told_whole_or_counted(
    first: int, cuts: list[int], pauses: list[float]
) -> None:
    lines, got = cutter()
    lines.feed(b"0\n" * first, 0.0)
    flood, now, at = b"".join(b"%d\n" % number for number in range(1, 2_001)), 0.0, 0
    for size, pause in zip(itertools.cycle(cuts), itertools.cycle(pauses), strict=False):
        lines.feed(flood[at : at + size], now := now + pause)
        if (at := at + size) >= len(flood):
            break
    lines.end()
    left_out = [line for line in got if b"left out" in line]
    told = [line for line in got if line not in left_out and line != b"0"]
    assert got.count(b"0") + len(told) + sum(int(line.split()[0][1:]) for line in left_out) == first + 2_000
    assert [int(line) for line in told] == sorted({int(line) for line in told})
    assert told[-1] == b"2000"


def test_the_last_words_that_come_line_by_line_are_told() -> None:
    lines, got = cutter()
    lines.feed(b"\n" * 19_800, 0.0)
    lines.feed(b"\n" * READ, 0.0)
    for line in (b"error: out of memory\n", b"aborted\n"):
        lines.feed(line, 0.0)
    lines.end()
    assert got[-2:] == [b"error: out of memory", b"aborted"]


def test_a_line_whose_beginning_was_left_out_is_not_told_as_another() -> None:
    lines, got = cutter()
    lines.feed(b"\n" * READ + b"1" * 4096, 0.0)
    lines.feed(b"23\nwell\n", 3600.0)
    assert got[-1] == b"well"
    assert int(got[0].split()[0][1:]) + len(got) - 1 == READ + 2
