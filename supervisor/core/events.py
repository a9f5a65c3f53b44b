"""What the scheduler hears and what it orders. Events are in the past tense, commands in the imperative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

EngineId: TypeAlias = int
RequestId: TypeAlias = int
ModelId: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an engine did not come up or went away."""

    code: str
    message: str
    log_lines: tuple[str, ...] = ()


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """A client wants an engine of this model."""

    request: RequestId
    model: ModelId


@dataclass(frozen=True, slots=True)
class RequestDone:
    """A request is over: its lease came back, or its client went away while it waited."""

    request: RequestId


@dataclass(frozen=True, slots=True)
class LoadAsked:
    """Somebody wants the model loaded, request or not."""

    model: ModelId


@dataclass(frozen=True, slots=True)
class UnloadAsked:
    """Somebody wants the model gone: after its requests, or `now`."""

    model: ModelId
    now: bool = False


@dataclass(frozen=True, slots=True)
class EngineSpawned:
    """Preparation is over, the process is being started."""

    engine: EngineId


@dataclass(frozen=True, slots=True)
class EngineBecameReady:
    """The engine answers."""

    engine: EngineId


@dataclass(frozen=True, slots=True)
class EngineGone:
    """The engine's process is reaped. `failure` is None where it was told to stop."""

    engine: EngineId
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ShutdownAsked:
    """The daemon is stopping."""


Event: TypeAlias = (
    RequestArrived
    | RequestDone
    | LoadAsked
    | UnloadAsked
    | EngineSpawned
    | EngineBecameReady
    | EngineGone
    | ShutdownAsked
)

# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StartEngine:
    """Bring up an engine; the outcome comes back as EngineSpawned, EngineBecameReady or EngineGone."""

    engine: EngineId
    model: ModelId


@dataclass(frozen=True, slots=True)
class StopEngine:
    """End an engine in whatever state it is; the outcome comes back as EngineGone."""

    engine: EngineId


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


Command: TypeAlias = StartEngine | StopEngine | GrantLease | RefuseRequest
