"""Profiles that mean harm: what is in a file is no larger than the file."""

from __future__ import annotations

import pytest

from supervisor.errors import ProfileInvalid
from supervisor.probe.profiles import load_profile, profile_names, read_profile

DOUBLED = "".join(f", &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))
MERGED = "".join(f", &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40))


@pytest.mark.parametrize(
    "text",
    [
        f"host: {{total: [&a0 [x, x]{DOUBLED}]}}",
        f"host: {{total: [&a0 {{x: 1}}{MERGED}]}}",
        f"host: {{total: 1}}\n? 0x{'f' * 6000}\n: 1",
        "host: {total: &a [*a]}",
        "[" * 100_000,
    ],
)
def test_what_swells_is_refused(text: str) -> None:
    with pytest.raises(ProfileInvalid, match=r"^x is neither YAML nor JSON"):
        read_profile(text.encode(), "x")


@pytest.mark.parametrize("name", ["/" + "a" * 300, "/a\0b", "~nobody-there/x"])
def test_a_name_that_cannot_be_one(name: str) -> None:
    with pytest.raises(ProfileInvalid, match="There is no file"):
        load_profile(name)


def test_those_that_come_with_the_program_are_read() -> None:
    assert [load_profile(name).host.total_bytes > 0 for name in profile_names()] == [True] * len(profile_names())
