"""The benchmark runs from end to end, and no request is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.running import run_benchmark

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.engine
@pytest.mark.full
def test_a_thousand_requests_are_answered(engine_binary: Path) -> None:
    out = run_benchmark("short", "--requests", "1000", "--engine", str(engine_binary))
    found = json.loads(out.splitlines()[-1])
    assert (found["lost"], found["leases left"], found["outcomes"]) == (0, 0, {"whole": 1000})
