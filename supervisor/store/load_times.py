"""Load times of starts, which a planner weighs when it decides who may be sent away."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.learn.history import typical_seconds
from supervisor.store.database import Database

_KEPT = 20  # of one way of starting a model
_KEPT_OF_ALL = 20_000


@dataclass(frozen=True, slots=True)
class LoadTime:
    """The load time of one start that succeeded.

    Attributes:
        model, options, engine: as in `Start`.
        devices: names, joined by commas; empty: the host alone.
        seconds: from the start of the process until it was ready.
        at: seconds since 1970.
    """

    model: str
    options: str
    engine: str
    devices: str
    seconds: float
    at: float


class LoadTimes:
    """The table of load times. Its methods raise sqlite3.Error where the database does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, load: LoadTime) -> None:
        """Keep a load time.

        Of the same way of starting, the oldest beyond 20 are forgotten, of all those beyond 20,000.
        """
        key = (load.model, load.options, load.engine, load.devices)
        with self._database.change() as connection:
            connection.execute(
                "INSERT INTO load_times (model, options, engine, devices, seconds, at) VALUES (?,?,?,?,?,?)",
                (*key, load.seconds, load.at),
            )
            connection.execute(
                """DELETE FROM load_times WHERE id IN (
                    SELECT id FROM load_times WHERE (model, options, engine, devices) = (?,?,?,?)
                    ORDER BY at DESC, id DESC LIMIT -1 OFFSET ?)""",
                (*key, _KEPT),
            )
            connection.execute(
                "DELETE FROM load_times WHERE id <= (SELECT id FROM load_times ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (_KEPT_OF_ALL,),
            )

    def typical(self, model: str, *, devices: str | None = None) -> float | None:
        """Return the middle of a model's newest five on these devices, else on any; None where there is none."""
        query = "SELECT seconds, devices FROM load_times WHERE model = ? ORDER BY at DESC, id DESC"
        rows = self._database.rows(query, (model,))
        there = [seconds for seconds, where in rows if where == devices]
        return typical_seconds(there or [seconds for seconds, _ in rows])
