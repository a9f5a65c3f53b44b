"""The benchmark of the dashboard measures all it promises."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.benchmarks.running import run_benchmark
from tests.support.lacking import lacking

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.engine
@pytest.mark.full
def test_a_short_run_measures_everything(engine_binary: Path) -> None:
    if shutil.which("chromium") is None and shutil.which("google-chrome") is None:
        lacking("the tests of the dashboard need Chromium")
    out = run_benchmark("dashboard", "--seconds", "0.5", "--engine", str(engine_binary))
    figures = json.loads(out.splitlines()[-1])
    assert {"idle [% of a core]", "open [% of a core]"} < figures.keys()
    assert figures["first paint [ms]"] > 0
    assert 50 < figures["weight [kB]"] <= 300
