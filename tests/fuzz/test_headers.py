"""Mutated GGUF headers: a bounded run always, a million on demand."""

from __future__ import annotations

import io
import os

import pytest

from supervisor.core.gguf import read_header
from tests.fuzz.blueprints import Blueprint, large, small
from tests.fuzz.extremes import cost, extremes
from tests.fuzz.headers import LIMIT_MB, LIMIT_MS, Figures, mutation, run, run_all


@pytest.mark.parametrize("blueprint", [*small(), *large()])
def test_the_headers_to_mutate_are_whole(blueprint: Blueprint) -> None:
    read_header(io.BytesIO(blueprint.data), len(blueprint.data))


def test_a_mutation_is_the_same_again() -> None:
    assert [mutation(number) for number in range(50)] == [mutation(number) for number in range(50)]


def test_some_mutated_headers() -> None:
    check(run(first=10**9, count=20_000), 20_000)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_million_mutated_headers() -> None:
    check(run_all(first=0, count=1_000_000, processes=os.cpu_count() or 1), 1_000_000)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_most_expensive_headers() -> None:
    for name, data in extremes():
        milliseconds, megabytes = cost(data)
        assert milliseconds < 5000, name
        assert megabytes <= LIMIT_MB, name


def check(figures: Figures, count: int) -> None:
    assert figures.count == count
    assert figures.refused > count / 3, figures
    assert figures.readable > count / 50, figures
    assert figures.slowest_ms <= LIMIT_MS, figures
    assert figures.most_traced_mb <= LIMIT_MB, figures
    assert figures.process_grew_mb <= LIMIT_MB, figures
