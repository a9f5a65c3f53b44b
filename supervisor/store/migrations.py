"""The schema of the database, as the steps that led to it.

Step n makes a database of version n - 1 into one of version n (`user_version`). A step that was released never changes:
what is wrong with it is put right by the next one.
"""

from __future__ import annotations

from typing import Final

Migrations = tuple[tuple[str, ...], ...]

MIGRATIONS: Final[Migrations] = (
    (
        """CREATE TABLE footprints (
            model TEXT NOT NULL,
            options TEXT NOT NULL,
            engine TEXT NOT NULL,
            backend TEXT NOT NULL,
            devices TEXT NOT NULL,
            build INTEGER,
            settings TEXT NOT NULL,
            footprint TEXT NOT NULL,
            estimated TEXT NOT NULL,
            overhead TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (model, options, engine, backend, devices)
        )""",
        "CREATE INDEX footprints_by_age ON footprints (at)",
        """CREATE TABLE load_times (
            id INTEGER PRIMARY KEY,
            model TEXT NOT NULL,
            options TEXT NOT NULL,
            engine TEXT NOT NULL,
            devices TEXT NOT NULL,
            seconds REAL NOT NULL,
            at REAL NOT NULL
        )""",
        "CREATE INDEX load_times_by_model ON load_times (model, at)",
    ),
    (
        """CREATE TABLE loaded (
            id TEXT PRIMARY KEY,
            path TEXT,
            options TEXT NOT NULL,
            at REAL NOT NULL
        )""",
    ),
    (
        "ALTER TABLE loaded ADD COLUMN hub TEXT",
        "ALTER TABLE loaded ADD COLUMN aliases TEXT NOT NULL DEFAULT '[]'",
    ),
    (
        """CREATE TABLE speeds (
            engine TEXT NOT NULL,
            device TEXT NOT NULL,
            rates TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (engine, device)
        )""",
    ),
    (  # what was measured knew neither threads nor all kinds of work, so it is measured anew
        "DROP TABLE speeds",
        """CREATE TABLE speeds (
            engine TEXT NOT NULL,
            device TEXT NOT NULL,
            threads INTEGER NOT NULL,
            rates TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (engine, device, threads)
        )""",
    ),
)
