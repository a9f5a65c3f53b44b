"""Foretell speed by what is in the store: what devices were measured to do; published figures for the others."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from supervisor.core.devices import Device, Machine, is_lent_processor
from supervisor.core.devices.model import HOST
from supervisor.core.history.records import Spent
from supervisor.core.plan import Placement
from supervisor.core.spec import ModelSpec
from supervisor.core.speed.foretell import Speed, foretell
from supervisor.core.speed.learn import correction
from supervisor.core.speed.machine import MachineSpeed, Rates, over_network
from supervisor.core.speed.published import host_rates, published_rates
from supervisor.store import Database
from supervisor.store.speeds import MeasuredSpeed, Speeds

_log = structlog.get_logger()


@dataclass(frozen=True)
class Foreteller:
    """Says how fast models will be.

    Attributes:
        cores: physical ones of the host; None: unknown.
    """

    database: Database
    cores: int | None

    def speed(
        self,
        spec: ModelSpec,
        placement: Placement,
        machine: Machine,
        engine: str,
        threads: int | None,
        answered: Sequence[Spent] = (),
    ) -> Speed | None:
        """Return the speed of a model at its place; None where nothing can be said (a projector, no layers).

        Args:
            engine: the program's digest, by which devices were measured.
            threads: those that the host computes with; None: one for each core.
            answered: what requests of the model took here, newest first.
        """
        rates = self.rates(machine.devices, engine, threads)
        taught = correction(spec, placement.options, rates, answered)
        return foretell(spec, placement.options, rates, placement.estimate.n_ctx_seq, taught)

    def rates(self, devices: Sequence[Device], engine: str, threads: int | None = None) -> MachineSpeed:
        """Return what each device does: measured with this engine, with another one, or as published."""
        known = self._known()
        count = threads if threads is not None and threads > 0 else self.cores or 1
        found = {HOST: _of_host(known, engine, count) or host_rates(threads or self.cores)}
        for device in devices:
            guess = host_rates(None) if is_lent_processor(device.name) else published_rates(device)
            found[device.name] = over_network(_newest(known, device_key(device), engine) or guess, device.round_trip_s)
        return MachineSpeed(found, count)

    def _known(self) -> list[MeasuredSpeed]:
        try:
            return Speeds(self.database).all()
        except sqlite3.Error as error:
            _log.warning("store_unreadable", reason=str(error))
            return []


def device_key(device: Device) -> str:
    """Return the name under which a device's figures are kept: what it is, not its place."""
    return f"{device.backend}:{device.description}"


def _of_host(known: Sequence[MeasuredSpeed], engine: str, threads: int) -> Rates | None:
    """Return what the host was measured to do with so many threads; else a guess from the nearest number of them."""
    counts = {one.threads for one in known if one.device == HOST}
    if not counts:
        return None
    nearest = min(counts, key=lambda count: (abs(count - threads), count))
    rates = _newest([one for one in known if one.threads == nearest], HOST, engine)
    if nearest == threads or rates is None:
        return rates
    slower = max(1.0, nearest / threads)
    return Rates({kind: seconds * slower for kind, seconds in rates.seconds.items()})


def _newest(known: Sequence[MeasuredSpeed], device: str, engine: str) -> Rates | None:
    there = [one for one in known if one.device == device]
    same = [one for one in there if one.engine == engine]
    return next((one.rates for one in same or there), None)
