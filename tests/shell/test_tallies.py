"""The counters of requests and loads stay few, whatever their names are."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import generate_latest

from supervisor.service.tallies import MOST_NAMES, OTHER, Tallies
from tests.store.test_history import load, request


def test_names_that_are_too_many_share_a_label() -> None:
    tallies = Tallies()
    for number in range(MOST_NAMES + 50):
        tallies.count(replace(request(1.0), model=f"m{number}", code=f"c{number}"))
        tallies.count_load(replace(load(1.0), model=f"m{number}", code=f"c{number}"))
    tallies.count(replace(request(1.0), model="m0", code="c0"))
    lines = generate_latest(tallies.registry).decode().splitlines()
    failed = [line for line in lines if line.startswith("supervisor_errors_total")]
    assert len(failed) == MOST_NAMES + 1
    assert f'supervisor_errors_total{{code="{OTHER}",model="{OTHER}"}} 50.0' in failed
    assert 'supervisor_errors_total{code="c0",model="m0"} 2.0' in failed
    assert f'supervisor_engine_failures_total{{code="{OTHER}",model="{OTHER}"}} 50.0' in lines
