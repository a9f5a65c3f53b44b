"""What a worker and the gateway of a daemon say to each other, and what the gateway and its daemon do.

Each message is a line of JSON with its kind. A worker dials the gateway. Its first line says what the connection is:
`join` (once, without a certificate), `hello` (one that stays, over which it reports) or `tunnel` (bytes of llama.cpp's
RPC from the next byte on). Unknown fields are passed over, so that two versions that are near each other work together.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from supervisor.core.text.foreignjson import NotJson

_Kind = TypeVar("_Kind")

PROTOCOL: Final = 1
"""Raise it where an older partner would misunderstand; partners of another one are refused."""

MOST_LINE: Final = 64 << 10
"""Bytes of a line."""

BUSY: Final = "worker_connected"
"""The code of a refusal that ends by itself: an earlier connection of the same worker has not ended yet."""

MOST_DEVICES: Final = 64

Word: TypeAlias = Annotated[str, msgspec.Meta(max_length=256)]
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")]
DeviceName: TypeAlias = Name
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=16 << 10)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class _Message(msgspec.Struct, frozen=True, tag_field="kind", tag=str.lower):
    """A message: its kind is the class's name in lower case."""


class OfferedDevice(msgspec.Struct, frozen=True):
    """A device of a worker: llama.cpp's name, and bytes; free as its driver tells now."""

    name: DeviceName
    description: Word
    total_bytes: Count
    free_bytes: Count


# ── from a worker ──


class Join(_Message, frozen=True):
    """It wants to be a worker. request: of a certificate (PEM). secret: empty in the first of two connections."""

    name: Name
    protocol: int
    secret: Word = ""
    request: Text = ""


class Hello(_Message, frozen=True):
    """It is there. build: of llama.cpp. machine: names the running host, to know one that is the daemon's own."""

    protocol: int
    program: Word
    build: Word
    machine: Word
    devices: Annotated[tuple[OfferedDevice, ...], msgspec.Meta(max_length=MOST_DEVICES)] = ()


class Report(_Message, frozen=True):
    """How it is; every few seconds. cpu_s: CPU time of the RPC server of each device that is lent."""

    devices: Annotated[tuple[OfferedDevice, ...], msgspec.Meta(max_length=MOST_DEVICES)] = ()
    cpu_s: Annotated[dict[DeviceName, Seconds], msgspec.Meta(max_length=MOST_DEVICES)] = {}


class Pong(_Message, frozen=True):
    """The answer to a ping."""

    number: Count


class Unable(_Message, frozen=True):
    """A tunnel that was asked for cannot be."""

    number: Count
    reason: Word


class Tunnel(_Message, frozen=True):
    """The connection is the tunnel of this number."""

    number: Count


FromWorker: TypeAlias = Join | Hello | Report | Pong | Unable | Tunnel


# ── to a worker ──


class Authority(_Message, frozen=True):
    """The authority's certificate (PEM), for one that has none yet."""

    certificate: Text


class Joined(_Message, frozen=True):
    """Its certificate (PEM)."""

    certificate: Text


class Refused(_Message, frozen=True):
    """It is not let in."""

    code: Word
    reason: Annotated[str, msgspec.Meta(max_length=2048)]


class Welcome(_Message, frozen=True):
    """It is let in. heartbeat_s: seconds between its reports."""

    heartbeat_s: Annotated[float, msgspec.Meta(ge=0.05, le=60)]


class Ping(_Message, frozen=True):
    """To be answered at once."""

    number: Count


class Open(_Message, frozen=True):
    """A tunnel to the RPC server of a device, which is started if it does not run."""

    number: Count
    device: DeviceName


class Free(_Message, frozen=True):
    """Nobody uses the device any more: its RPC server is ended."""

    device: DeviceName


ToWorker: TypeAlias = Authority | Joined | Refused | Welcome | Ping | Open | Free


# ── between the gateway and its daemon ──


class DeviceState(msgspec.Struct, frozen=True):
    """A device of a worker as the daemon knows it.

    Attributes:
        port: where engines find its RPC server, on the loopback interface.
        pid: the engine that has it.
    """

    name: str
    description: str
    total_bytes: int
    free_bytes: int
    port: int
    pid: int | None = None


class WorkerState(msgspec.Struct, frozen=True):
    """A worker that has joined.

    Attributes:
        joined_at: seconds since 1970.
        rtt_s: round trip, the shortest of the last ones; None: not measured yet.
        here: it runs on the daemon's own host.
        reason: why it is not connected.
    """

    name: str
    joined_at: float
    connected: bool = False
    program: str = ""
    build: str = ""
    address: str = ""
    rtt_s: float | None = None
    here: bool = False
    devices: tuple[DeviceState, ...] = ()
    reason: str = ""


class Listening(_Message, frozen=True):
    """The gateway listens."""

    host: str
    port: int


class Failed(_Message, frozen=True):
    """The gateway cannot do what was asked; ticket 0: it cannot run."""

    ticket: int
    reason: str


class State(_Message, frozen=True):
    """All workers."""

    workers: tuple[WorkerState, ...]


class Lost(_Message, frozen=True):
    """The devices of these ports are lost, for whoever uses them."""

    worker: str
    ports: tuple[int, ...]
    reason: str


class Invited(_Message, frozen=True):
    """An invitation was made."""

    ticket: int
    token: str
    expires_at: float


class Removed(_Message, frozen=True):
    """A worker was removed; found: there was one of this name."""

    ticket: int
    found: bool


FromGateway: TypeAlias = Listening | Failed | State | Lost | Invited | Removed


class Invite(_Message, frozen=True):
    """Make an invitation, of use for so many seconds. host: what the other side is to dial."""

    ticket: int
    host: str
    seconds: float


class Remove(_Message, frozen=True):
    """Let a worker in no more."""

    ticket: int
    name: str


class Tell(_Message, frozen=True):
    """Tell everything that is known: a daemon has come that has heard nothing yet."""


ToGateway: TypeAlias = Invite | Remove | Tell


def line_of(message: msgspec.Struct) -> bytes:
    """Return a message as a line."""
    return msgspec.json.encode(message) + b"\n"


def of_worker(line: bytes) -> FromWorker:
    """Read a worker's line. Raises NotJson."""
    return _read(_FROM_WORKER, line)


def to_worker(line: bytes) -> ToWorker:
    """Read a gateway's line to a worker. Raises NotJson."""
    return _read(_TO_WORKER, line)


def of_gateway(line: bytes) -> FromGateway:
    """Read a gateway's line to its daemon. Raises NotJson."""
    return _read(_FROM_GATEWAY, line)


def to_gateway(line: bytes) -> ToGateway:
    """Read a daemon's line to its gateway. Raises NotJson."""
    return _read(_TO_GATEWAY, line)


def _read(decoder: msgspec.json.Decoder[_Kind], line: bytes) -> _Kind:
    try:
        return decoder.decode(line)
    except (ValueError, RecursionError) as error:  # what is no UTF-8 is an error of its own
        raise NotJson(str(error)) from None


_FROM_WORKER: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)
_TO_WORKER: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)
_FROM_GATEWAY: msgspec.json.Decoder[FromGateway] = msgspec.json.Decoder(FromGateway)
_TO_GATEWAY: msgspec.json.Decoder[ToGateway] = msgspec.json.Decoder(ToGateway)
