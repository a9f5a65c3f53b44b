"""The messages between a daemon and the copy of the one before, which finishes what had begun. One JSON object each.

Fields that one side does not know are dropped, and those that it misses have defaults: the two may be of different
versions.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from supervisor.core.schedule.events import EngineId, Failure, ModelId, RequestId
from supervisor.core.takeover.carried import Address


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The new daemon has its engines: the copy is to lend no more, and to say who has what."""


class Began(msgspec.Struct, frozen=True, tag="began"):
    """The new daemon serves clients."""


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """A request of the copy has this engine, which answers there."""

    request: RequestId
    engine: EngineId
    model: ModelId
    address: Address


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A request of the copy gets no engine."""

    request: RequestId
    failure: Failure


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """An engine is no more. told: its end was wanted. failure: why it ended else. how: its exit code and signal."""

    engine: EngineId
    told: bool = False
    failure: Failure | None = None
    how: tuple[int | None, int | None] = (None, None)


class Took(msgspec.Struct, frozen=True, tag="took"):
    """The copy has taken `Ready`: what follows is who has what."""


class Has(msgspec.Struct, frozen=True, tag="has"):
    """A request of the copy has an engine."""

    request: RequestId
    engine: EngineId


class Unread(msgspec.Struct, frozen=True, tag="unread"):
    """What an engine has written of lines that have not ended. The copy reads no more of it."""

    engine: EngineId
    out: bytes = b""
    err: bytes = b""


class Wants(msgspec.Struct, frozen=True, tag="wants"):
    """A request of the copy waits for an engine."""

    request: RequestId
    model: ModelId
    affinity: str | None = None


class Told(msgspec.Struct, frozen=True, tag="told"):
    """All that the copy had has been told: the new daemon may let clients in."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A request of the copy is over, or waits no more."""

    request: RequestId


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """An engine answered with the error of a failed device."""

    engine: EngineId
    message: str


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The copy is at work. One that does not say so is ended."""


class Idle(msgspec.Struct, frozen=True, tag="idle"):
    """A client's connection, which comes with this, waits for its next request."""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """A request has ended; `record` is that of the history."""

    record: msgspec.Raw


ToCopy: TypeAlias = Ready | Began | Granted | Refused | Gone
FromCopy: TypeAlias = Took | Has | Unread | Wants | Told | Done | Broken | Alive | Idle | Finished
