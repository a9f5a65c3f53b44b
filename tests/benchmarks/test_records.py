"""The benchmark of the history runs from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.engine
@pytest.mark.full
def test_a_round_measures_requests_and_events(engine_binary: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.records", "--rounds", "1", "--engine", str(engine_binary)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures.keys() == {"request", "event"}
    assert all(one["off"] > 0 < one["on"] for one in figures.values())
