"""The benchmark runs from end to end, and no request is lost."""

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
def test_a_thousand_requests_are_answered(engine_binary: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.short", "--requests", "1000", "--engine", str(engine_binary)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["lost"], found["leases left"], found["outcomes"]) == (0, 0, {"whole": 1000})
