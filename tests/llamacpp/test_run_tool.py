"""A tool of a build, whatever it prints."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from supervisor.llamacpp.run_tool import run_tool


@pytest.mark.parametrize("length", [0, 1, 1 << 16, (1 << 16) + 1, 3 << 20])
def test_a_line_of_any_length_is_logged_and_told(tmp_path: Path, length: int) -> None:
    log = tmp_path / "log"
    script = f"print('first'); print('x' * {length}); print('last', end=''); raise SystemExit(3)"
    told: list[str] = []
    done = asyncio.run(run_tool([sys.executable, "-c", script], env=os.environ, log=log, on_line=told.append))
    assert done.status == 3
    assert (told[0], "".join(told[1:-1]), told[-1]) == ("first", "x" * length, "last")
    assert tuple(told) == done.tail
    assert log.read_text().endswith(f"first\n{'x' * length}\nlast")
    assert all(len(line) <= 2 << 16 for line in told)
