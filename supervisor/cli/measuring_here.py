"""Measure what this machine does, and keep it: the command line's own way, with or without a daemon."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from supervisor.cli.installing import run_until_signal
from supervisor.cli.progress import Report
from supervisor.cli.render import note
from supervisor.config import find_config, load_settings
from supervisor.core.devices.model import HOST
from supervisor.core.speed.machine import Rates
from supervisor.errors import EngineStartFailed
from supervisor.llamacpp.program import Program
from supervisor.measuring.calibrate import Calibration
from supervisor.planning.speeds import device_key
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from supervisor.store import Database
from supervisor.store.speeds import MeasuredSpeed, Speeds
from supervisor.system.cores import physical_cores
from supervisor.system.paths import Places, places


def measure_here(
    config: str | None, engine: str | None, env: Mapping[str, str], report: Report
) -> dict[str, dict[str, float]]:
    """Return the seconds per unit of work by device name, kept in the store as well.

    Raises EngineNotFound, EngineUnusable, EngineStartFailed, StoreUnusable, ConfigError.
    """
    where = places(env)
    settings = load_settings(find_config(config, env, Path.cwd(), where.config), env)
    program = Program(where, env, lambda: engine or settings.engine.path)
    binary, digest = program.find(), program.digest(program.find())
    machine = Prober(Surroundings(env)).machine(binary.path, [])
    keys = {HOST: HOST} | {device.name: device_key(device) for device in machine.devices}
    threads = physical_cores()
    found = {}
    for name in keys:
        calibration = Calibration(binary.path, where, env, name, threads, told=_teller(name, report))
        found[name] = _measured(calibration)
    _keep(
        where,
        [
            MeasuredSpeed(digest, keys[name], threads if name == HOST else 0, rates, time.time())
            for name, rates in found.items()
        ],
    )
    return {name: dict(rates.seconds) for name, rates in found.items()}


def _measured(calibration: Calibration) -> Rates:
    """Return the rates; without repacked weights where the engine fails with them."""
    try:
        return run_until_signal(calibration.rates())
    except EngineStartFailed as error:
        if calibration.device != HOST:
            raise
        note(f"note: measured without repacked weights, since the engine failed with them: {error.message}")
        return run_until_signal(replace(calibration, repack=False).rates())


def _keep(where: Places, found: list[MeasuredSpeed]) -> None:
    """Write beside a daemon that may run: SQLite lets one writer wait for the other."""
    with contextlib.closing(Database.open(where.database)) as database:
        for one in found:
            Speeds(database).record(one)


def _teller(name: str, report: Report) -> Callable[[int, int], None]:
    return lambda step, count: report(f"{name}: model {step} of {count}", (step - 1) / count)
