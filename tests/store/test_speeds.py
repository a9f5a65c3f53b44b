"""What devices were measured to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.core.speed import Rates
from supervisor.store import Database
from supervisor.store.speeds import MeasuredSpeed, Speeds


def measured(engine: str, device: str, seconds: float, at: float, threads: int = 2) -> MeasuredSpeed:
    return MeasuredSpeed(engine, device, threads, Rates({"layer": seconds}, "measured"), at)


def test_a_new_measurement_replaces_that_of_the_same_engine_device_and_threads(tmp_path: Path) -> None:
    newer, other, single = (
        measured("e1", "CPU", 2.0, 3.0),
        measured("e2", "CPU", 9.0, 2.0),
        measured("e1", "CPU", 4.0, 1.5, 1),
    )
    with Database.open(tmp_path / "state.db") as database:
        for one in (measured("e1", "CPU", 1.0, 1.0), other, single, newer):
            Speeds(database).record(one)
    with Database.read(tmp_path / "state.db") as database:
        assert Speeds(database).all() == [newer, other, single]


@pytest.mark.parametrize("rates", ["{", "5", '{"layer": "fast"}', "[" * 100_000])
def test_a_row_that_cannot_be_understood_is_as_good_as_absent(tmp_path: Path, rates: str) -> None:
    with Database.open(tmp_path / "state.db") as database:
        Speeds(database).record(measured("e1", "CPU", 1.0, 1.0))
        with database.change() as connection:
            connection.execute("UPDATE speeds SET rates = ?", (rates,))
        assert Speeds(database).all() == []
