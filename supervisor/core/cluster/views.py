"""What a node says of itself when another one asks: its devices and who holds their memory, its models, its requests.

Every text and every number has a bound, as it comes from another host. What a field means is said where it is shown
(docs/rest.md). Times are told as seconds until then or since then: no node trusts the clock of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from supervisor.core.cluster.messages import MOST_MODELS, Bytes, Count, ModelName, NotUnderstood

MOST_DEVICES: Final = 256
_TEXT: Final = msgspec.Meta(max_length=255)
_WORD: Final = msgspec.Meta(max_length=64)
_SECONDS: Final = msgspec.Meta(ge=0, le=1e11)

Text = Annotated[str, _TEXT]
Word = Annotated[str, _WORD]
Seconds = Annotated[float, _SECONDS]
Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


@dataclass(frozen=True)
class Holding:
    """What one engine holds on one device. Bytes.

    Attributes:
        model: None where whoever asks may not see it.
        reserve_bytes: kept back for the engine's own runtime.
        measured: by the engine's own account; False: as planned.
    """

    model: ModelName | None
    weights_bytes: Bytes = 0
    kv_bytes: Bytes = 0
    compute_bytes: Bytes = 0
    other_bytes: Bytes = 0
    reserve_bytes: Bytes = 0
    measured: bool = False


@dataclass(frozen=True)
class DeviceView:
    """A device of a node, or its main memory as `CPU`. Bytes; what nobody told is None.

    Attributes:
        free_bytes: as the driver, or the system, says now.
        others_bytes: of other programs.
        usable_bytes: for all engines together.
    """

    name: Text
    total_bytes: Bytes
    backend: Text = ""
    description: Text = ""
    free_bytes: Bytes | None = None
    others_bytes: Bytes | None = None
    usable_bytes: Bytes | None = None
    held: Annotated[tuple[Holding, ...], msgspec.Meta(max_length=MOST_MODELS)] = ()


@dataclass(frozen=True)
class ModelView:
    """A model that has an engine on a node, or had one that failed.

    Attributes:
        loaded_s, failed_s: seconds since it was ready, or failed. leaves_s: seconds until it leaves for idleness.
        n_ctx: tokens of one slot.
        code: of its failure.
    """

    id: ModelName
    state: Word
    stage: Word | None = None
    progress: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    pid: Number | None = None
    n_ctx: Number | None = None
    n_slots: Count | None = None
    leases: Count = 0
    waiting: Count = 0
    rss_bytes: Bytes | None = None
    pinned: bool = False
    loaded_s: Seconds | None = None
    leaves_s: Seconds | None = None
    failed_s: Seconds | None = None
    code: Word | None = None


@dataclass(frozen=True)
class View:
    """A node as it sees itself. requests: those that it answers, or that wait there."""

    devices: Annotated[tuple[DeviceView, ...], msgspec.Meta(max_length=MOST_DEVICES)] = ()
    models: Annotated[tuple[ModelView, ...], msgspec.Meta(max_length=MOST_MODELS)] = ()
    requests: Count = 0


def view_of(said: object) -> View:
    """Return what a node has said, from its JSON. Raises NotUnderstood."""
    try:
        return msgspec.convert(said, View)
    except msgspec.ValidationError as error:
        raise NotUnderstood(str(error)) from None
