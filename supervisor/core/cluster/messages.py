"""What nodes of a cluster tell each other: who they are, what runs there, who has claimed a model, what is configured.

A message is JSON of a bounded size. Fields that are not known are left out, so nodes of neighbouring versions
understand each other.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from supervisor.core.cluster.identity import Peer
from supervisor.core.text.foreignjson import NotJson, typed

PROTOCOL: Final = 1
"""Version of the messages. A node takes those of its own and of the one before."""

MOST_BYTES: Final = 1 << 18
"""Bytes of one message."""

MOST_REPLICAS: Final = 256
"""Nodes that may have the same model loaded by a claim."""

LEAST_WAIT_S: Final = 2.0
"""Seconds that a request has to wait before it is worth another copy of its model, however fast that loads."""

MOST_MODELS: Final = 2000
"""Models that a node tells of."""

MOST_TEXT: Final = 1 << 18
"""Bytes of a configuration, in UTF-8."""

MOST_CONFIG_BYTES: Final = 5 << 17
"""Bytes of the message with one: as JSON it has twice as many at most."""

MOST_VERSION: Final = 1 << 20
"""The highest number of a version of the configuration."""

MOST_PROBLEM: Final = 500
"""Characters in which a node says why it has not taken a configuration over."""

_LITTLE_BYTES: Final = 256 << 20

_COUNT: Final = msgspec.Meta(ge=0, le=1 << 20)
_BYTES: Final = msgspec.Meta(ge=0, le=1 << 53)

NodeName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")]
ModelName = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Serial = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{0,40}\Z")]
Host = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:%-]{1,255}\Z")]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Count = Annotated[int, _COUNT]
Bytes = Annotated[int, _BYTES]
Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Replica = Annotated[int, msgspec.Meta(ge=0, le=MOST_REPLICAS - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1 << 30)]


class NotUnderstood(ValueError):
    """A message is none of these, or of a version that is not spoken here."""


class Device(msgspec.Struct, frozen=True):
    """A device of a node."""

    name: Annotated[str, msgspec.Meta(max_length=255)]
    total_bytes: Bytes


class Node(msgspec.Struct, frozen=True):
    """A node: kept in the cluster for as long as it is a member.

    Attributes:
        host, port: where other nodes reach it.
        program: its version.
        serial: of its certificate.
        models: those that it can load, by id, with their aliases.
        config_version: of the cluster's configuration in force there; 0: none is.
        config_problem: why it has not taken a newer one over; empty: there is none.
    """

    name: NodeName
    host: Host
    port: Port
    program: Annotated[str, msgspec.Meta(max_length=64)]
    models: Annotated[dict[ModelName, tuple[ModelName, ...]], msgspec.Meta(max_length=MOST_MODELS)] = {}
    devices: Annotated[tuple[Device, ...], msgspec.Meta(max_length=256)] = ()
    serial: Serial = ""
    config_version: Count = 0
    config_problem: Annotated[str, msgspec.Meta(max_length=MOST_PROBLEM)] = ""
    protocol: Count = PROTOCOL


class Running(msgspec.Struct, frozen=True):
    """A model that has an engine on a node.

    Attributes:
        slots: requests that it answers at once. busy: those under way. waiting: those that wait for a slot.
        wait_s: seconds that a request which came now would wait. load_s: seconds that a load of the model takes.
    """

    state: Literal["loading", "ready"]
    slots: Count = 0
    busy: Count = 0
    waiting: Count = 0
    wait_s: Seconds = 0.0
    load_s: Seconds = 0.0

    @property
    def has_room(self) -> bool:
        """True if a request would have a slot at once."""
        return self.state == "ready" and not self.waiting and self.busy < self.slots

    @property
    def is_behind(self) -> bool:
        """True if a request would wait longer than another copy of the model takes to load."""
        return not self.has_room and self.wait_s > max(self.load_s, LEAST_WAIT_S)


class Load(msgspec.Struct, frozen=True):
    """What a node does now: published and never kept.

    Attributes:
        number: grows with every one that the node publishes since it started.
        started_at: when it started, in seconds since 1970.
        draining: it takes nothing new.
        new: it has just come, and has heard nothing of the others: they tell their loads soon.
        free_bytes: memory that models could have, of all its devices.
    """

    node: NodeName
    number: Number
    started_at: float
    free_bytes: Bytes
    draining: bool = False
    new: bool = False
    models: Annotated[dict[ModelName, Running], msgspec.Meta(max_length=MOST_MODELS)] = {}
    protocol: Count = PROTOCOL

    def says_the_same_as(self, other: Load) -> bool:
        """Return whether it says the same as another one, but for its number and free bytes that hardly differ."""
        near = abs(self.free_bytes - other.free_bytes) < _LITTLE_BYTES
        return near and msgspec.structs.replace(self, number=other.number, free_bytes=other.free_bytes) == other


class Claim(msgspec.Struct, frozen=True):
    """The right of a node to load a model. It ends when it is not renewed.

    Attributes:
        number: grows with every renewal.
        replica: which copy of the model it is, from 0 on. There is one claim for each.
    """

    model: ModelName
    node: NodeName
    number: Number = 0
    replica: Replica = 0
    protocol: Count = PROTOCOL


class Config(msgspec.Struct, frozen=True):
    """A version of the configuration that all nodes share.

    Attributes:
        number: from 1 on; after the highest one from 1 on again.
        node: at which it was set. at: when, in seconds since 1970.
        text: YAML.
    """

    number: Annotated[int, msgspec.Meta(ge=1, le=MOST_VERSION)]
    node: NodeName
    at: Annotated[float, msgspec.Meta(ge=0, le=1e11)]
    text: Annotated[str, msgspec.Meta(max_length=MOST_TEXT)]
    protocol: Count = PROTOCOL


_Message = TypeVar("_Message", Node, Load, Claim, Config)


def bytes_of(message: Node | Load | Claim | Config) -> bytes:
    """Return a message as it is sent. Raises ValueError where it is too large."""
    found = msgspec.json.encode(message)
    most = _most(type(message))
    if len(found) > most:
        raise ValueError(f"a message of {len(found)} bytes is larger than {most}")
    return found


def read(data: bytes, kind: type[_Message]) -> _Message:
    """Read a message of this kind. Raises NotUnderstood."""
    if len(data) > _most(kind):
        raise NotUnderstood(f"it is larger than {_most(kind)} bytes")
    try:
        found = typed(data, kind)
    except NotJson as error:
        raise NotUnderstood(str(error)) from None
    if found.protocol not in {PROTOCOL, PROTOCOL - 1}:
        raise NotUnderstood(f"it is of protocol {found.protocol}, and {PROTOCOL} is spoken here")
    return found


def _most(kind: type) -> int:
    return MOST_CONFIG_BYTES if kind is Config else MOST_BYTES


def peer_of(node: Node) -> Peer:
    """Return a node as its certificate says it."""
    return Peer(node.name, node.serial)


def key_of(model: str, replica: int = 0) -> str:
    """Return the key under which a claim of a model is kept: ids have characters that keys may not have."""
    return f"{hashlib.sha256(model.encode()).hexdigest()[:40]}-{replica}"
