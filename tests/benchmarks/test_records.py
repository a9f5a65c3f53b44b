"""The benchmark of records of requests runs from end to end."""

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
@pytest.mark.parametrize("kind", ["history", "traces", "captures"])
def test_a_round_measures_requests_and_events(engine_binary: Path, kind: str) -> None:
    wanted = ("--of", kind, "--rounds", "1", "--engine", str(engine_binary))
    command = [sys.executable, "-m", "benchmarks.records", *wanted]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures.keys() == {"request", "event"}
    assert all(one["off"] > 0 < one["on"] for one in figures.values())
