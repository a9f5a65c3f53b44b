"""What devices were measured to do: seconds per unit of work by kind, of one engine on one device."""

from __future__ import annotations

import json
from dataclasses import dataclass

from supervisor.core.speed.machine import Rates
from supervisor.store.database import Database


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """The rates of a device.

    Attributes:
        engine: hash of the program and its libraries.
        device: `CPU`, or what the device is (`NVIDIA H200`), behind its back end.
        threads: of the host, where that is the device; else 0.
        at: seconds since 1970.
    """

    engine: str
    device: str
    threads: int
    rates: Rates
    at: float


class Speeds:
    """The table of measured speeds. Its methods raise sqlite3.Error where the database does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, speed: MeasuredSpeed) -> None:
        """Keep what a device does, in place of what was measured before."""
        with self._database.change() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO speeds (engine, device, threads, rates, at) VALUES (?,?,?,?,?)",
                (speed.engine, speed.device, speed.threads, json.dumps(dict(speed.rates.seconds)), speed.at),
            )

    def all(self) -> list[MeasuredSpeed]:
        """Return all that can be understood, newest first."""
        rows = self._database.rows("SELECT engine, device, threads, rates, at FROM speeds ORDER BY at DESC")
        return [
            MeasuredSpeed(engine, device, threads, found, at)
            for engine, device, threads, rates, at in rows
            if (found := _rates(rates)) is not None
        ]


def _rates(text: object) -> Rates | None:
    """Read rates; None of what cannot be understood."""
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(isinstance(value, int | float) for value in found.values()):
        return None
    try:
        return Rates({str(kind): float(value) for kind, value in found.items()}, "measured")
    except OverflowError:  # an integer of hundreds of digits
        return None
