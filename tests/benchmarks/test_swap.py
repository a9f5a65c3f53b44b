"""The benchmark of swaps runs from end to end; every mix is answered by both servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.running import run_benchmark

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.engine
@pytest.mark.full
def test_a_small_run_measures_both_servers(engine_binary: Path) -> None:
    sizes = ["--size", "192", "--requests", "2", "--mixes", "one room,by bytes,kept slots"]
    out = run_benchmark("swap", *sizes, "--engine", str(engine_binary))
    figures = json.loads(out.splitlines()[-1])
    kept = figures.pop("kept slots")
    assert figures.keys() == {"one room", "by bytes"}
    for by_server in figures.values():
        for found in by_server.values():
            assert found["swaps"] >= 1
            assert 0 < found["p95 wait [s]"] <= found["longest wait [s]"] <= found["total [s]"]
    assert kept["keep_kv"]["processed after a swap"] <= kept["keep_kv"]["of them new"]
    assert kept["without"]["processed after a swap"] == kept["without"]["prompt tokens"] > 1000
    assert {found["swaps"] for found in kept.values()} == {4.0}
