"""Figures as people read them."""

from __future__ import annotations

import pytest

from supervisor.cli.render import cell, duration, size

KIB, MIB, GIB, TIB = (1 << power for power in (10, 20, 30, 40))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"), (0, "0 B"), (9, "9 B"), (512, "512 B"), (1023, "1023 B"), (KIB, "1.0 KiB"), (1536, "1.5 KiB"),
        (10 * KIB, "10 KiB"), (1023 * KIB, "1023 KiB"), (MIB - 1, "1.0 MiB"), (12 * GIB, "12 GiB"),
        (2 * TIB, "2.0 TiB"), (5000 * TIB, "5000 TiB"),
    ],
)  # fmt: skip
def test_bytes_in_the_unit_that_leaves_few_digits(count: int | None, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"), (0, "0s"), (119.9, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_799, "47h"),
        (172_800, "2d"), (8_640_000, "100d"),
    ],
)  # fmt: skip
def test_lengths_of_time_have_at_least_two_of_their_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0, "0"), ("", ""), (False, "False"), ("x", "x")])
def test_a_cell_without_a_value_has_a_dash(value: object, text: str) -> None:
    assert cell(value) == text
