"""The benchmark runs from end to end and measures all it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.running import run_benchmark

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.engine
@pytest.mark.full
def test_a_quick_run_measures_everything(engine_binary: Path) -> None:
    out = run_benchmark("relay", "--quick", "--engine", str(engine_binary))
    figures = json.loads(out.splitlines()[-1])
    relayed = [
        *(f"CPU per event, {streams} [µs]" for streams in ("1 stream", "1 stream, paced", "8 streams, paced")),
        *("added to first event, small, p50 [ms]", "embeddings, 8 at once [1/s]", "events, 8 streams [1/s]"),
        *("slot free after leaving, one piece [ms]", "CPU per event, 8 streams, 1 tool [µs]"),
        *(f"CPU per request, {shape} [µs]" for shape in ("small", "1 tool", "30 tools", "100 KB", "1 MB")),
    ]
    for measure in relayed:
        assert {"supervisor", "router"} <= figures[measure].keys()
    for measure in ("CPU per request, small [µs]", "CPU per event, 8 streams [µs]"):
        assert {"bare", "keyed", "supervisor"} <= figures[measure].keys()
    for measure in ("memory after start [MiB]", "engine ready to answer [ms]"):
        assert figures[measure]["supervisor"] > 0
