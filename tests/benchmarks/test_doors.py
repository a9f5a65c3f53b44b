"""The benchmark of the first line runs from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.doors import measure
from tests.benchmarks.running import run_benchmark

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.engine
@pytest.mark.full
def test_both_paths_are_asked(engine_binary: Path) -> None:
    out = run_benchmark("doors", "--requests", "3", "--engine", str(engine_binary), codes=(0, 1))
    found = json.loads(out.splitlines()[-1])
    assert found["requests"] == 3
    assert min(found["Ollama [ms]"], found["OpenAI [ms]"]) > 0


def test_the_ratio_is_that_of_the_medians() -> None:
    told = measure(0, 3, lambda port, name: 3.0 if name == "Ollama" else 2.0)
    assert (told["Ollama [ms]"], told["OpenAI [ms]"], told["Ollama/OpenAI"]) == (3.0, 2.0, 1.5)
