"""How many cores are ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.system.cores import parse_quota, physical_cores


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("200000 100000\n", 2),
        ("150000 100000", 1),
        ("50000 100000", 0),
        ("max 100000", None),
        ("", None),
        ("1", None),
    ],
)
def test_quotas_of_a_control_group(text: str, cores: int | None) -> None:
    assert parse_quota(text) == cores


def test_never_more_than_the_machine_has_and_never_none(tmp_path: Path) -> None:
    free = physical_cores(tmp_path)
    assert 1 <= free <= (os.cpu_count() or 1)
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert physical_cores(tmp_path) == 1
    (tmp_path / "cpu.max").write_text("99999999999 100000\n")
    assert physical_cores(tmp_path) == free
