"""Learned footprints: the newest observation of every way of starting a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from supervisor.core.engine_output.footprint import Card, DeviceFootprint, Footprint
from supervisor.core.learn.history import Observation
from supervisor.core.learn.identity import Start
from supervisor.store.database import Database

_KEPT = 2000
_LONGEST = 1 << 14  # characters of a start's settings; every plan reads all rows of its model
_COLUMNS = "model, options, engine, backend, devices, build, settings, footprint, estimated, overhead, at"


class Footprints:
    """The table of footprints. Its methods raise sqlite3.Error where the database does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, observation: Observation) -> None:
        """Keep an observation in place of an earlier one of the same start; the oldest of very many are forgotten.

        One whose settings are endless is not kept.
        """
        start, settings = observation.start, _text(observation.start.settings)
        if len(settings) > _LONGEST:
            return
        row = (
            *(start.model, start.options, start.engine, start.backend, _text(start.devices), start.build),
            settings,
            _text(asdict(observation.footprint)),
            _text(observation.estimated),
            _text(observation.overhead_bytes),
            observation.at,
        )
        with self._database.change() as connection:
            connection.execute(f"INSERT OR REPLACE INTO footprints ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)", row)
            connection.execute(
                "DELETE FROM footprints WHERE at < (SELECT at FROM footprints ORDER BY at DESC LIMIT 1 OFFSET ?)",
                (_KEPT - 1,),
            )

    def forget(self, start: Start) -> None:
        """Delete the observation of a start; the start's settings and build do not count."""
        key = start.model, start.options, start.engine, start.backend, _text(start.devices)
        with self._database.change() as connection:
            connection.execute(
                "DELETE FROM footprints WHERE (model, options, engine, backend, devices) = (?,?,?,?,?)", key
            )

    def find(self, model: str) -> tuple[Observation, ...]:
        """Return all observations of a model, newest first. A row that cannot be understood counts as absent."""
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM footprints WHERE model = ? AND length(settings) <= ? ORDER BY at DESC",
            (model, _LONGEST),
        )
        found = (_observation(row) for row in rows)
        return tuple(one for one in found if one is not None)


def _observation(row: tuple[Any, ...]) -> Observation | None:
    model, options, engine, backend, devices, build, settings, footprint, estimated, overhead, at = row
    try:
        return Observation(
            Start(model, options, json.loads(settings), engine, backend, tuple(json.loads(devices)), build),
            _footprint(json.loads(footprint)),
            _figures(json.loads(estimated)),
            _figures(json.loads(overhead)),
            at,
        )
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return None


def _footprint(plain: Mapping[str, Any]) -> Footprint:
    devices = tuple(DeviceFootprint(**device) for device in plain["devices"])
    return Footprint(**{**plain, "devices": devices, "cards": tuple(Card(**card) for card in plain["cards"])})


def _figures(plain: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(figure) for name, figure in plain.items()}


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
