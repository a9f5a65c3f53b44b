"""The events that the scheduler hears and the commands that it gives.

Events are in the past tense, commands in the imperative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

EngineId: TypeAlias = int
RequestId: TypeAlias = int
ModelId: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why an engine did not come up or went away, or why a request gets none.

    Attributes:
        retry_after: seconds after which a refused request has a chance; None: repeating it alone does not help.
        device, lacking: what ran out of memory, by the plan's name, and the bytes that could not be had.
    """

    code: str
    message: str
    log_lines: tuple[str, ...] = ()
    retry_after: float | None = None
    device: str | None = None
    lacking: int | None = None


class Plan(Protocol):
    """The part of a planner's decision that the scheduler needs; `core.plan.Placement` is one."""

    @property
    def evict(self) -> tuple[EngineId, ...]:
        """Engines that must leave first."""

    @property
    def used_bytes(self) -> Mapping[str, int]:
        """Bytes that the engine will hold, by device name."""


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """A client wants an engine of this model; requests with one `affinity` go to one engine where that is free."""

    request: RequestId
    model: ModelId
    affinity: str | None = None


@dataclass(frozen=True, slots=True)
class RequestDone:
    """A request is over: its lease came back, or its client went away while it waited."""

    request: RequestId


@dataclass(frozen=True, slots=True)
class LoadAsked:
    """Somebody wants the model loaded, request or not. `fresh`: engines that live end first, their leases kept."""

    model: ModelId
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class UnloadAsked:
    """Somebody wants the model gone: after its requests, or `now`.

    serves_waiting: those that wait are of its requests, too, whatever it takes to load it; else they are refused.
    """

    model: ModelId
    now: bool = False
    serves_waiting: bool = False


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The answers of `policy_of` and `limits_of` have changed."""


@dataclass(frozen=True, slots=True)
class LaunchChanged:
    """The model is to be launched otherwise: engines that live end after their requests, new ones take their place."""

    model: ModelId


@dataclass(frozen=True, slots=True)
class RoomSeen:
    """The machine was looked at, as CheckRoom ordered; the planner sees what was found.

    failure: the model cannot be planned for at all, because its header cannot be read, say.
    """

    engine: EngineId
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class EngineSpawned:
    """Preparation is over, the process is being started."""

    engine: EngineId


@dataclass(frozen=True, slots=True)
class EngineBecameReady:
    """The engine answers.

    slots: how many requests it takes at a time; None: it does not tell.
    """

    engine: EngineId
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class EngineHung:
    """The engine lives but answers nothing."""

    engine: EngineId
    failure: Failure


@dataclass(frozen=True, slots=True)
class EngineOutgrown:
    """The engine holds far more memory than planned: it is to start anew as soon as it has no request."""

    engine: EngineId


@dataclass(frozen=True, slots=True)
class EngineGone:
    """The engine's process is reaped. `failure` is None where it was told to stop.

    again: it failed while it loaded, and there is something else to try: whoever waits goes on waiting.
    """

    engine: EngineId
    failure: Failure | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class EngineAdopted:
    """An engine of the process that ours took over from is ours now. It is ready.

    Attributes:
        leases: requests that have it.
        leaving: it is to end after them.
        ready_at, idle_since, worn: as in `state.Engine`.
    """

    engine: EngineId
    model: ModelId
    plan: Plan
    slots: int | None
    ready_at: float
    idle_since: float
    leases: tuple[RequestId, ...] = ()
    worn: bool = False
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The time that `Scheduler.next_wake` named has come; earlier or later does no harm."""


@dataclass(frozen=True, slots=True)
class ShutdownAsked:
    """The daemon is stopping: requests at work may end within the limit. The second time, or `now`: at once."""

    now: bool = False


Event: TypeAlias = (
    RequestArrived
    | RequestDone
    | LoadAsked
    | UnloadAsked
    | PolicyChanged
    | LaunchChanged
    | RoomSeen
    | EngineSpawned
    | EngineBecameReady
    | EngineHung
    | EngineOutgrown
    | EngineGone
    | EngineAdopted
    | TimePassed
    | ShutdownAsked
)

# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class CheckRoom:
    """Look at the machine for this engine to come; the outcome is RoomSeen.

    Look again and again, within a limit, until every device shows `vacated` bytes free: what engines that have just
    ended held there.
    """

    engine: EngineId
    model: ModelId
    vacated: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StartEngine:
    """Bring up an engine; the outcome comes back as EngineSpawned, EngineBecameReady or EngineGone."""

    engine: EngineId
    model: ModelId
    plan: Plan


@dataclass(frozen=True, slots=True)
class StopEngine:
    """End an engine in whatever state it is; the outcome comes back as EngineGone.

    now: without asking it.
    idle: it was ready and has no request, so that what it remembers may be saved first.
    """

    engine: EngineId
    now: bool = False
    idle: bool = False


@dataclass(frozen=True, slots=True)
class GrantLease:
    """Let the request use the engine."""

    request: RequestId
    engine: EngineId


@dataclass(frozen=True, slots=True)
class RefuseRequest:
    """Tell the request why it gets no engine."""

    request: RequestId
    failure: Failure


Command: TypeAlias = CheckRoom | StartEngine | StopEngine | GrantLease | RefuseRequest
