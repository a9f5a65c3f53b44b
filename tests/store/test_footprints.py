"""Footprints and load times: what goes in comes out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core.engine_output.footprint import Card, DeviceFootprint, Footprint
from supervisor.core.learn.history import Observation
from supervisor.core.learn.identity import Start
from supervisor.store import Database, Footprints, LoadTime, LoadTimes
from tests.store.observations import observation


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "state.db") as opened:
        yield opened


def test_the_newest_come_first_and_one_model_at_a_time(database: Database) -> None:
    footprints = Footprints(database)
    for number in (2, 1, 3):
        footprints.record(observation(number))
    footprints.record(observation(4, model="other"))
    assert footprints.find("model") == tuple(observation(number) for number in (3, 2, 1))
    assert footprints.find("nobody's") == ()


def test_one_way_of_starting_is_forgotten(database: Database) -> None:
    footprints = Footprints(database)
    for number in (1, 2):
        footprints.record(observation(number))
    footprints.forget(replace(observation(1).start, settings={}, build=None))
    assert footprints.find("model") == (observation(2),)


def test_what_fills_a_disk_is_not_kept(database: Database) -> None:
    """Clients choose options: thousands of rows of a megabyte each would be read for every plan."""
    footprints = Footprints(database)
    one = observation(1)
    for size, kept in ((8_000, True), (100_000, False)):
        start = replace(one.start, options=str(size), settings={"extra": ["x" * size]})
        footprints.record(replace(one, start=start))
        assert (start in [found.start for found in footprints.find("model")]) == kept
    assert len(database.rows("SELECT 1 FROM footprints")) == 1


def test_a_row_of_before_that_is_too_long_is_not_read(database: Database) -> None:
    footprints = Footprints(database)
    footprints.record(observation(1))
    with database.change() as connection:
        connection.execute("UPDATE footprints SET settings = ?", ('{"a": "' + "x" * 100_000 + '"}',))
    assert footprints.find("model") == ()


def test_the_same_start_again_replaces_what_was_known(database: Database) -> None:
    footprints = Footprints(database)
    footprints.record(observation(1))
    again = replace(observation(1), overhead_bytes={"CPU": 1}, at=99.0)
    footprints.record(again)
    assert footprints.find("model") == (again,)


@pytest.mark.parametrize(
    "change", [{"engine": "e2"}, {"backend": "vulkan"}, {"devices": ("other",)}, {"options": "o2"}]
)
def test_another_engine_back_end_device_or_option_is_another_start(
    database: Database, change: dict[str, object]
) -> None:
    footprints = Footprints(database)
    one = observation(1)
    footprints.record(one)
    footprints.record(replace(one, start=replace(one.start, **change)))  # type: ignore[arg-type]  # as parametrized
    assert len(footprints.find("model")) == 2


def test_a_row_that_makes_no_sense_is_passed_over(database: Database) -> None:
    footprints = Footprints(database)
    for number in range(4):
        footprints.record(observation(number))
    with database.change() as connection:
        for number, (column, value) in enumerate([("footprint", "{}"), ("settings", "no JSON"), ("overhead", "[1]")]):
            connection.execute(f"UPDATE footprints SET {column} = ? WHERE at = ?", (value, number))
    assert footprints.find("model") == (observation(3),)


def test_very_many_are_not_kept(database: Database) -> None:
    footprints = Footprints(database)
    row = database.rows("SELECT 1")
    assert row == [(1,)]
    footprints.record(observation(0))
    with database.change() as connection:
        connection.execute(
            """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
            INSERT INTO footprints SELECT model, 'o' || i, engine, backend, devices, build, settings, footprint,
            estimated, overhead, i FROM footprints, n"""
        )
    footprints.record(observation(9, at=9999.0))
    found = footprints.find("model")
    assert len(found) == 2000
    assert found[0].at == 9999.0
    assert found[-1].at == 2500 - 1998


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
BYTES = st.integers(0, 1 << 53)
FIGURES = st.dictionaries(NAMES, BYTES, max_size=3)
PLAIN = st.none() | st.booleans() | st.integers(-5, 5) | NAMES | st.lists(NAMES, max_size=2)
STARTS = st.builds(
    Start,
    model=st.just("model"),
    options=NAMES,
    settings=st.dictionaries(NAMES, PLAIN, max_size=3),
    engine=NAMES,
    backend=NAMES,
    devices=st.lists(NAMES, max_size=2).map(tuple),
    build=st.none() | st.integers(0, 99999),
)
FOOTPRINTS = st.builds(
    Footprint,
    devices=st.lists(st.builds(DeviceFootprint, NAMES, *[BYTES] * 8), max_size=3).map(tuple),
    n_ctx=BYTES,
    cards=st.lists(st.builds(Card, NAMES, NAMES, NAMES, BYTES), max_size=2).map(tuple),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.builds(Observation, STARTS, FOOTPRINTS, FIGURES, FIGURES, st.floats(0, 1e10)))
def test_what_goes_in_comes_out(database: Database, one: Observation) -> None:
    with database.change() as connection:
        connection.execute("DELETE FROM footprints")
    Footprints(database).record(one)
    assert Footprints(database).find("model") == (one,)


def load(seconds: float, at: float, *, devices: str = "CUDA0", model: str = "model") -> LoadTime:
    return LoadTime(model, "options", "engine", devices, seconds, at)


def test_the_typical_load_is_that_on_these_devices_else_on_any(database: Database) -> None:
    times = LoadTimes(database)
    assert times.typical("model") is None
    for at, seconds in enumerate([30.0, 4.0, 5.0, 6.0, 4.5, 5.5]):
        times.record(load(seconds, at))
    times.record(load(60.0, 10, devices="CUDA0,CUDA1"))
    assert times.typical("model", devices="CUDA0") == 5.0  # the newest five
    assert times.typical("model", devices="CUDA0,CUDA1") == 60.0
    assert times.typical("model", devices="CUDA7") == 5.5
    assert times.typical("other") is None


def test_only_the_newest_loads_are_kept(database: Database) -> None:
    times = LoadTimes(database)
    for at in range(30):
        times.record(load(float(at), at))
    times.record(load(1.0, 0, model="other"))
    rows = database.rows("SELECT seconds FROM load_times WHERE model = 'model' ORDER BY at")
    assert rows == [(float(at),) for at in range(10, 30)]
    assert times.typical("other") == 1.0
