"""The benchmark of records of requests runs from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.running import run_benchmark

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.engine
@pytest.mark.full
@pytest.mark.parametrize("kind", ["history", "traces", "captures"])
def test_a_round_measures_requests_and_events(engine_binary: Path, kind: str) -> None:
    wanted = ("--of", kind, "--rounds", "1", "--engine", str(engine_binary))
    out = run_benchmark("records", *wanted)
    figures = json.loads(out.splitlines()[-1])
    assert figures.keys() == {"request", "event"}
    assert all(one["off"] > 0 < one["on"] for one in figures.values())
