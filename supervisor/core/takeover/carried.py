"""What a daemon hands to the one that takes its place: engines that run, what is known of them, and how to reach both.

It is written as JSON to memory that the next process inherits. Each engine is read by itself: one that cannot be read,
because another version wrote it otherwise, is ended and loaded again, and the others stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from supervisor.core.engine_output.footprint import Footprint
from supervisor.core.plan import Placement, Seat
from supervisor.core.schedule.carry import CarriedSchedule
from supervisor.core.schedule.events import EngineId, ModelId, RequestId

FORMAT: Final = 1
"""Of what is carried. Another one is not read, and all engines end. Raise it where a field changes its meaning."""

Address: TypeAlias = str | tuple[str, int]
"""The path of a Unix socket; or host and port."""

T = TypeVar("T")


class NotCarried(Exception):
    """It cannot be read: the reason is its text."""


@dataclass(frozen=True)
class HeldProcess:
    """A child that runs, as its parent holds it.

    Attributes:
        create_time: seconds since 1970.
        record: the file of its record; "" where there is none.
        pipes: descriptors of its standard input, output and error.
        unread: what it has written of lines that have not ended, on output and error.
    """

    pid: int
    create_time: float
    record: str
    pipes: tuple[int, int, int]
    unread: tuple[bytes, bytes] = (b"", b"")


@dataclass(frozen=True)
class CarriedEngine:
    """An engine that is ready.

    Attributes:
        argv: its command, as it was started.
        placement, seat: where it is; one of them.
        slots: as the scheduler counts; None: it does not tell.
        n_ctx, n_slots, info, footprint: what it reported (`engines.manner.ReadyInfo`).
        asked_at, ready_at, idle_since: seconds of the pool's clock.
        first_bytes, outgrown: as in `pool.lease.Running`.
        leaving: it ends after its requests.
        said: the newest lines of its log. notes: which of them are the daemon's own, by their place.
        launch: the name of what decided how it is launched (`registry.launch_digest`).
    """

    number: EngineId
    model: ModelId
    process: HeldProcess
    address: Address
    argv: tuple[str, ...]
    placement: Placement | None
    seat: Seat | None
    slots: int | None
    n_ctx: int | None
    n_slots: int | None
    info: Mapping[str, Any]
    footprint: Footprint | None
    asked_at: float
    ready_at: float
    idle_since: float
    first_bytes: int | None = None
    outgrown: bool = False
    worn: bool = False
    leaving: bool = False
    said: tuple[str, ...] = ()
    notes: tuple[int, ...] = ()
    launch: str = ""

    @property
    def place(self) -> Placement | Seat:
        """Place of the engine. Raises NotCarried."""
        found = self.placement or self.seat
        if found is None:
            raise NotCarried("it is not said where the engine is")
        return found


@dataclass(frozen=True)
class CarriedCopy:
    """A copy of an earlier daemon, which still answers requests.

    Attributes:
        channel: the descriptor over which it is talked to.
        leases, waiting: its requests by its own numbers: which engine each has, or which model it waits for.
    """

    pid: int
    channel: int
    leases: tuple[tuple[RequestId, EngineId], ...] = ()
    waiting: tuple[tuple[RequestId, ModelId, str | None], ...] = ()


@dataclass(frozen=True)
class CarriedListener:
    """A socket that listens, with the address that the configuration gave for it.

    passed: it came from the service manager.
    """

    host: str
    port: int
    descriptor: int
    passed: bool = False


@dataclass(frozen=True)
class CarriedPins:
    """What people have set while the daemon ran: `schedule.pins.Pins`."""

    pinned: Mapping[ModelId, bool] = field(default_factory=dict)
    ttl: Mapping[ModelId, float | None] = field(default_factory=dict)


class _Bare(msgspec.Struct, frozen=True):
    format: int
    program: str
    lock: int | None
    listeners: tuple[CarriedListener, ...]
    secret: str = ""
    copies: tuple[CarriedCopy, ...] = ()
    engines: tuple[msgspec.Raw, ...] = ()
    schedule: msgspec.Raw = msgspec.Raw(b"{}")
    pins: msgspec.Raw = msgspec.Raw(b"{}")
    gateway: HeldProcess | None = None
    nats: HeldProcess | None = None


class _Process(msgspec.Struct, frozen=True):
    process: HeldProcess
    model: ModelId = ""


@dataclass(frozen=True)
class Carried:
    """All of it.

    Attributes:
        program: the version of the one that wrote it.
        lock: the descriptor of the locked file of the state folder.
        secret: by which the daemon proves itself to other programs of its user; "" for a new one.
        gateway: the process through which workers are reached.
        nats: the NATS server of a cluster.
        lost: processes of engines that cannot be read, each with its model and the reason.
    """

    program: str
    lock: int | None
    listeners: tuple[CarriedListener, ...] = ()
    secret: str = ""
    engines: tuple[CarriedEngine, ...] = ()
    copies: tuple[CarriedCopy, ...] = ()
    schedule: CarriedSchedule = field(default_factory=CarriedSchedule)
    pins: CarriedPins = field(default_factory=CarriedPins)
    gateway: HeldProcess | None = None
    nats: HeldProcess | None = None
    lost: tuple[tuple[HeldProcess, ModelId, str], ...] = ()


def encode(carried: Carried) -> bytes:
    """Return it as JSON."""
    return msgspec.json.encode(
        {
            "format": FORMAT,
            "program": carried.program,
            "lock": carried.lock,
            "listeners": carried.listeners,
            "secret": carried.secret,
            "copies": carried.copies,
            "engines": carried.engines,
            "schedule": carried.schedule,
            "pins": carried.pins,
            "gateway": carried.gateway,
            "nats": carried.nats,
        },
        enc_hook=_plain,
    )


def decode(text: bytes) -> Carried:
    """Read it back; what cannot be read of it is left out, and engines of which that holds are `lost`.

    Raises NotCarried where not even locks and listeners can be read.
    """
    try:
        bare = msgspec.json.decode(text, type=_Bare)
    except ValueError as error:
        raise NotCarried(f"what was handed over cannot be read: {error}") from None
    engines, lost = [], []
    for raw in bare.engines:
        try:
            if bare.format != FORMAT:
                raise NotCarried(f"it is of format {bare.format}, and {FORMAT} is read here")
            engine = msgspec.json.decode(raw, type=CarriedEngine)
            _ = engine.place
            engines.append(engine)
        except (ValueError, NotCarried) as error:
            held = msgspec.json.decode(raw, type=_Process)
            lost.append((held.process, held.model, str(error)))
    return Carried(
        program=bare.program,
        lock=bare.lock,
        listeners=bare.listeners,
        secret=bare.secret,
        engines=tuple(engines),
        copies=bare.copies,
        schedule=_or(bare.schedule, CarriedSchedule(), known=bare.format == FORMAT),
        pins=_or(bare.pins, CarriedPins(), known=bare.format == FORMAT),
        gateway=bare.gateway,
        nats=bare.nats,
        lost=tuple(lost),
    )


def _or(raw: msgspec.Raw, otherwise: T, *, known: bool) -> T:
    """Return what is written there; `otherwise` where that cannot be read."""
    try:
        return msgspec.json.decode(raw, type=type(otherwise)) if known else otherwise
    except ValueError:
        return otherwise


def _plain(value: object) -> object:
    """Return a value as JSON has it that msgspec does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} is not carried")
