"""The benchmark of take-overs, run small."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.benchmarks.running import run_benchmark

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a daemon is taken over on Linux alone")


@pytest.mark.engine
@pytest.mark.full
def test_a_small_run_loses_nothing(engine_binary: Path) -> None:
    small = "--times", "1", "--streams", "2", "--rate", "20"
    lines = run_benchmark("takeover", *small, "--engine", str(engine_binary)).splitlines()
    rows = {
        cells[1]: cells for cells in ([cell.strip() for cell in line.split("|")] for line in lines) if len(cells) > 3
    }
    for what in ("without", "1 take-overs"):
        requests, errors, *_, events = rows[what][2:-1]
        assert int(requests) > 0
        assert int(errors) == 0
        assert int(events) > 0
