"""Learn footprints and load times from the engines that are started, and keep them in the store.

An engine tells its buffers only at `-lv 4`, where it also writes 30 and more lines for every request, some for every
prompt in its cache. So it is asked to only while nothing is known of this very way of starting it; afterwards the
store answers. What cannot be kept is said in the log and hurts nobody.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace

import structlog

from supervisor.core.devices import Device
from supervisor.core.engine_output.failures import KILLED, OUT_OF_MEMORY
from supervisor.core.engine_output.footprint import Footprint, asking, renamed
from supervisor.core.launch import LaunchOptions, LaunchSpec
from supervisor.core.learn.history import Observation, lowers_plans, overhead
from supervisor.core.learn.identity import Settings, Start, backend_of, options_hash, plain_settings
from supervisor.core.memory import EstimateOptions, MemoryEstimate
from supervisor.core.plan import Explicit, Placement
from supervisor.store import Database, Footprints, LoadedModel, LoadedModels, LoadTime, LoadTimes
from supervisor.system import processes

_log = structlog.get_logger()

# Decided by the plan, or part of what is estimated
_PLANNED = frozenset(field.name for field in (*fields(EstimateOptions), *fields(Explicit))) | {
    "device",
    "rpc",
    "fit",
    "keep_kv",
}

_LONGEST = 1024  # characters of one option's text

_DISPROVED_BY = frozenset({OUT_OF_MEMORY, KILLED})

ProcessBytes = Callable[[int], Mapping[str, int]]
"""The bytes that the driver says a process holds, by device name."""


@dataclass(frozen=True)
class Intent:
    """The way in which an engine is going to be started.

    Attributes:
        settings: see `plain_settings`.
        names: devices it may use, as `--device` names them.
        devices: what these are, as in `Start`.
        estimated: what was estimated for it; None where nothing was.
    """

    settings: Settings
    names: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    estimated: MemoryEstimate | None = None


class Learning:
    """The memory of all engines of a daemon. Thread-safe; `close` waits for what is still being written.

    Args:
        database: open for writing; closed by `close`.
        clock: seconds since 1970.
        process_bytes: of the devices; what it cannot tell is left out.
    """

    def __init__(
        self, database: Database, clock: Callable[[], float], process_bytes: ProcessBytes = lambda pid: {}
    ) -> None:
        self._database = database
        self._footprints = Footprints(database)
        self._load_times = LoadTimes(database)
        self._clock = clock
        self._process_bytes = process_bytes
        self._writer = ThreadPoolExecutor(1, "store")
        self._forgotten: set[tuple[str, ...]] = set()  # not yet deleted

    @property
    def database(self) -> Database:
        """Store that all is kept in."""
        return self._database

    @property
    def process_bytes(self) -> ProcessBytes:
        """Function that asks the drivers what a process holds, by device. It blocks."""
        return self._process_bytes

    def begin(self, start: Start, intent: Intent, names: Mapping[str, str], n_ctx_train: int | None) -> StartNotes:
        """Look up what is known of such a start. Blocks briefly.

        Args:
            start, intent: how it will be started.
            names: the engine's name of a device → ours, where they differ.
            n_ctx_train: the model's native context.
        """
        learned = self.observations(start.model)
        known = [one.footprint for one in learned if _same_start(one.start, start)]
        doubtful = tuple(one.start for one in learned if one.start.engine == start.engine and lowers_plans(one))
        return StartNotes(self, start, intent, known[0] if known else None, names, n_ctx_train, doubtful)

    def observations(self, model: str) -> tuple[Observation, ...]:
        """Return the observations of a model, newest first; none where the store cannot be read."""
        forgotten = frozenset(self._forgotten)  # before the rows: what is deleted meanwhile is not among them either
        try:
            return tuple(one for one in self._footprints.find(model) if _key(one.start) not in forgotten)
        except sqlite3.Error as error:
            _log.warning("store_unreadable", reason=str(error))
            return ()

    def reload_seconds(self, model: str, devices: str | None = None) -> float | None:
        """Return the usual seconds of a start of the model; None where none is known."""
        try:
            return self._load_times.typical(model, devices=devices)
        except sqlite3.Error as error:
            _log.warning("store_unreadable", reason=str(error))
            return None

    def forget(self, start: Start) -> None:
        """Forget what a start showed, from now on, without making the caller wait."""
        key = _key(start)
        self._forgotten.add(key)

        def delete(_: Database) -> None:
            self._footprints.forget(start)
            self._forgotten.discard(key)

        self.later("that a footprint is forgotten", delete)

    def later(self, what: str, job: Callable[[Database], None]) -> None:
        """Write something else down, in order and without making the caller wait; log what cannot be kept."""

        def write() -> None:
            try:
                job(self._database)
            except sqlite3.Error as error:
                _log.warning("not_kept", what=what, reason=str(error))

        try:
            self._writer.submit(write)
        except RuntimeError:  # closed: the daemon is ending
            _log.info("not_kept", what=what, reason="the store is closed")

    def loaded(self) -> tuple[LoadedModel, ...]:
        """Return the models that were loaded when the last daemon ended. Raise sqlite3.Error."""
        return LoadedModels(self._database).all()

    def flush(self) -> None:
        """Wait until all pending writes are done."""
        self._writer.submit(lambda: None).result()

    def close(self) -> None:
        """Write what is pending and close the database."""
        self._writer.shutdown(wait=True)
        self._database.close()

    def keep(self, notes: StartNotes, pid: int, seconds: float, account: Footprint | None) -> None:
        """Write a successful start down without making the caller wait."""
        try:
            self._writer.submit(self._keep, notes, pid, seconds, account)
        except RuntimeError:  # closed: the daemon is ending
            _log.info("start_not_kept", reason="the store is closed")

    def _keep(self, notes: StartNotes, pid: int, seconds: float, account: Footprint | None) -> None:
        start, now = notes.start, self._clock()
        try:
            held = overhead(account, self._told(notes, pid), processes.anonymous_bytes(pid)) if account else {}
            load = LoadTime(start.model, start.options, start.engine, ",".join(notes.intent.names), seconds, now)
            self._load_times.record(load)
            if account is not None:
                self._footprints.record(Observation(start, account, _compute_bytes(notes.intent), held, now))
        except Exception as error:  # noqa: BLE001 - the boundary of a thread; the engine runs on without its record
            _log.warning("start_not_kept", reason=str(error))

    def _told(self, notes: StartNotes, pid: int) -> Mapping[str, int]:
        """Return a process's bytes on the devices that the engine may use.

        A GPU may have a second name, for another back end.
        """
        names = notes.intent.names
        return {name: held for name, held in self._process_bytes(pid).items() if name in names} if names else {}


@dataclass(frozen=True)
class StartNotes:
    """The notes of one start: what was known before, and where to write what it shows.

    Attributes:
        known: what such a start held before.
        doubtful: earlier starts of the model that may have made its plan too small.
    """

    learning: Learning
    start: Start
    intent: Intent
    known: Footprint | None
    names: Mapping[str, str] = field(default_factory=dict)
    n_ctx_train: int | None = None
    doubtful: tuple[Start, ...] = ()

    def asked(self, launch: LaunchSpec, flags: Collection[str]) -> LaunchSpec:
        """Return the launch that makes the engine report its buffers, where that is useful and the engine can."""
        return launch if self.known else replace(launch, argv=asking(launch.argv, flags))

    def failed(self, code: str) -> None:
        """Forget what may have made the plan too small, if memory ran out under it.

        The next plan goes by the estimate, and such starts are measured anew.
        """
        if self.doubtful and code in _DISPROVED_BY:
            _log.warning("footprints_forgotten", starts=len(self.doubtful), code=code)
            for start in self.doubtful:
                self.learning.forget(start)

    def ready(self, pid: int, seconds: float, n_ctx: int | None, account: Footprint | None) -> Footprint | None:
        """Write down that the engine is ready; return its footprint, reported or known.

        A known one counts only while its slots have the context they had then.
        """
        account = renamed(account, self.names) if account else None
        self.learning.keep(self, pid, seconds, account)
        if account is None and self.known is not None:
            slot = min(self.known.n_ctx_seq, self.n_ctx_train or self.known.n_ctx_seq)
            return self.known if n_ctx in {slot, None} else None
        return account


def intent_of(placement: Placement, options: LaunchOptions, devices: Sequence[Device]) -> Intent:
    """Return the intent of a start by plan; `devices` are the placement's, in its order."""
    return Intent(
        plain_settings(
            placement.options,
            split_mode=placement.split_mode,
            main_gpu=placement.main_gpu,
            extra=_beside(options),
        ),
        names=placement.devices,
        devices=tuple(device.endpoint or device.description for device in devices),
        estimated=None if options.extra_args or options.env or options.lora else placement.estimate,
    )


def start_of(identity: str, intent: Intent, engine: str, build: int | None) -> Start:
    """Return the key of a start: `identity` is the model's, `engine` the program's digest.

    A build of 0 counts as none.
    """
    return Start(
        model=identity,
        options=options_hash(intent.settings),
        settings=intent.settings,
        engine=engine,
        backend=backend_of(intent.names),
        devices=intent.devices,
        build=build or None,
    )


def _beside(options: LaunchOptions) -> tuple[str, ...]:
    """Return what may decide memory beside the estimate's options and the plan.

    Variables, which may be secret, and long texts, of which the store would keep thousands, are there as a hash.
    """
    given = {
        field.name: value
        for field in fields(LaunchOptions)
        if field.name not in _PLANNED and (value := getattr(options, field.name)) != field.default and value
    }
    plain = [_short(f"{name}={value}") for name, value in given.items() if name != "env"]
    return (*sorted(plain), *(f"{name}={_hidden(value)}" for name, value in sorted(options.env.items())))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text.partition('=')[0]}={_hidden(text)}"


def _hidden(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _same_start(one: Start, other: Start) -> bool:
    return _key(one) == _key(other)


def _key(start: Start) -> tuple[str, ...]:
    return (start.model, start.options, start.engine, start.backend, *start.devices)


def _compute_bytes(intent: Intent) -> dict[str, int]:
    devices = intent.estimated.devices if intent.estimated else ()
    return {device.name: device.compute_bytes for device in devices}
