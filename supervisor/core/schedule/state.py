"""All the state of the scheduler, and the changes to it that more than one module needs. It decides nothing."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from supervisor.core.plan import DoesNotFit, Resident
from supervisor.core.schedule.events import (
    Command,
    EngineId,
    Failure,
    ModelId,
    Plan,
    RefuseRequest,
    RequestId,
    StopEngine,
)
from supervisor.core.schedule.lifecycle import LEAVING, STARTING, EngineState, Trigger, step
from supervisor.core.schedule.limits import ModelPolicy, SchedulerLimits

Planner: TypeAlias = Callable[[ModelId, tuple[Resident, ...]], Plan | DoesNotFit]
"""The planner's answer for a model beside these residents, by the newest look at the machine.

Raises a SupervisorError where nothing can be planned for the model.
"""

UNKNOWN_SLOTS = 4  # of an engine that does not tell: llama-server's own default
_UNKNOWN_LOAD_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Waiter:
    """A request that has no engine yet."""

    request: RequestId
    arrived: float
    affinity: str | None


@dataclass(slots=True, eq=False)
class Engine:
    """An engine, from the decision that there should be one to its end.

    Attributes:
        looking: the ended engines whose memory the present look waits for; None: no look is under way.
        made: the engines that were made to leave for it last.
        rounds: how often in a row such engines were gone, it found no room, and no other engine was started in it.
        rounds_at: `State.starts` when they were made to leave.
        plan: where it will go; until it is `ordered`, a claim that later ones respect.
        victims: engines that leave for that plan.
        ordered: when it was told to start; None: it waits for its room.
        leases: since when each request has it.
        ready_at, idle_since: of a ready engine, since when it is so.
        for_room: it drains for another's sake and may be called back.
        worn: it is to start anew when it is idle.
        end: why it was ended though nobody wanted it to end.
    """

    id: EngineId
    model: Model = field(repr=False)
    state: EngineState = EngineState.RESERVED
    looking: frozenset[EngineId] | None = None
    looked: bool = False
    made: frozenset[EngineId] = frozenset()
    rounds: int = 0
    rounds_at: int = 0
    plan: Plan | None = None
    victims: frozenset[EngineId] = frozenset()
    verdicts: dict[str, tuple[object, Plan | DoesNotFit]] = field(default_factory=dict, repr=False)
    ordered: float | None = None
    used_bytes: Mapping[str, int] = field(default_factory=dict)
    slots: int | None = None
    leases: dict[RequestId, float] = field(default_factory=dict)
    ready_at: float = 0.0
    idle_since: float = 0.0
    for_room: bool = False
    worn: bool = False
    end: Failure | None = None

    @property
    def pending(self) -> bool:
        """True if it waits for its room; nothing of it is on the machine."""
        return self.state is EngineState.RESERVED and self.ordered is None

    @property
    def extra(self) -> bool:
        """True for a replica beside the model's first engine: it takes free room only, nothing leaves for it."""
        serving = self.model.serving
        return serving[0] is not self or any(other.ordered is not None for other in serving if other is not self)

    @property
    def leaving(self) -> bool:
        return self.state in LEAVING

    @property
    def idle(self) -> bool:
        return self.state is EngineState.READY and not self.leases


@dataclass(slots=True, eq=False)
class Model:
    """A model that somebody has asked for since the start.

    Attributes:
        engines: those that live.
        waiting: in the order of arrival.
        wanted_since: asked for by command, or to be brought back; None once it is ready.
        leaves: it is unloaded as soon as nobody waits for it.
        target: how many engines it should have while it is in use.
        last: how its last engine ended, or BACKOFF; None: it never had one.
        failure, failed_at: why an engine of it failed last, and when.
        failures: when its engines failed, without one of use in between.
        retry_at, grow_at: no start before, and none of an extra engine.
        looped: it failed too often in a row; it stays as it is until somebody asks.
        homes: which engine served an affinity last, newest last.
        load_seconds, busy_seconds: what a load took last, and what a lease takes, newer ones counting more; None: not
            known.
        idle_since: the end of its last lease.
    """

    id: ModelId
    engines: list[Engine] = field(default_factory=list)
    waiting: dict[RequestId, Waiter] = field(default_factory=dict)
    wanted_since: float | None = None
    leaves: bool = False
    target: int = 0
    last: EngineState | None = None
    failure: Failure | None = None
    failed_at: float | None = None
    failures: deque[float] = field(default_factory=deque)
    retry_at: float = 0.0
    grow_at: float = 0.0
    looped: bool = False
    homes: OrderedDict[str, Engine] = field(default_factory=OrderedDict)
    load_seconds: float | None = None
    busy_seconds: float | None = None
    idle_since: float | None = None

    @property
    def in_demand(self) -> bool:
        return bool(self.waiting) or self.wanted_since is not None

    @property
    def serving(self) -> list[Engine]:
        """Engines that can be used, now or soon."""
        return [engine for engine in self.engines if not engine.leaving]

    def fail(self, failure: Failure, now: float) -> None:
        """Remember a failure and its time."""
        self.failure, self.failed_at = failure, now

    def forgive(self) -> None:
        """Forget the failures: somebody asked for the model, or it was of use."""
        self.failures.clear()
        self.looped = False
        self.retry_at = 0.0


@dataclass(slots=True)
class State:
    """The whole state.

    Attributes:
        queued, leased: where each open request is.
        wake_at: when time alone will change something.
        vacated: what ended engines held and no look has yet found free.
        starts: engines that were told to start.
        facts: counts what can change a planner's answer beside the residents given to it.
        looked_at: the time of the last look at the machine.
        hit_at: when a request last came for a model at work, or for one that had been so less than half a load ago.
        hit_share: of the last requests, how many did.
        load_seconds: what loads took, newer ones counting more; None: there was none.
        crowds, crowd_since: the most requests that were open at a time since then, and in the minute before.
        close_at: when a stopping daemon ends the requests that still run.
        out: the commands of the present event.
    """

    planner: Planner
    policy_of: Callable[[ModelId], ModelPolicy]
    limits: SchedulerLimits
    limits_of: Callable[[], SchedulerLimits] | None = None
    models: dict[ModelId, Model] = field(default_factory=dict)
    engines: dict[EngineId, Engine] = field(default_factory=dict)
    queued: dict[RequestId, Model] = field(default_factory=dict)
    leased: dict[RequestId, Engine] = field(default_factory=dict)
    vacated: dict[EngineId, Mapping[str, int]] = field(default_factory=dict)
    starts: int = 0
    facts: int = 0
    looked_at: float = 0.0
    hit_at: float = 0.0
    hit_share: float = 0.0
    load_seconds: float | None = None
    crowds: tuple[int, int] = (0, 0)
    crowd_since: float = 0.0
    last_engine: EngineId = 0
    closing: bool = False
    close_at: float | None = None
    wake_at: float | None = None
    out: list[Command] = field(default_factory=list)

    def model(self, model: ModelId) -> Model:
        """Return the model's state, made on first use."""
        return self.models.get(model) or self.models.setdefault(model, Model(model))

    @property
    def open(self) -> int:
        """Number of requests that wait or have an engine."""
        return len(self.queued) + len(self.leased)

    @property
    def crowd(self) -> int:
        """Largest number of requests that were open at a time of late."""
        return max(self.crowds)

    def reload_seconds(self, model: Model) -> float:
        """Return the seconds that a load of the model takes, as far as known: its own last one, else others'."""
        if model.load_seconds is not None:
            return model.load_seconds
        return _UNKNOWN_LOAD_SECONDS if self.load_seconds is None else self.load_seconds

    def reserve(self, model: Model) -> None:
        """Add a new engine, to be started when there is room."""
        self.last_engine += 1
        engine = Engine(self.last_engine, model)
        if model.last is EngineState.BACKOFF:
            engine.state = step(model.last, Trigger.RETRY)
        model.last = None
        model.engines.append(engine)
        self.engines[engine.id] = engine

    def stop(self, engine: Engine, *, now: bool = False) -> None:
        """Order the engine's end; one that only waits for its room just goes."""
        if engine.pending:
            engine.state = step(engine.state, Trigger.CANCEL)
            self.remove(engine)
            return
        idle = engine.state in {EngineState.READY, EngineState.DRAINING} and not engine.leases
        engine.state = step(engine.state, Trigger.STOP)
        self.out.append(StopEngine(engine.id, now, idle=idle and not now))

    def drain(self, engine: Engine, *, for_room: bool) -> None:
        """Grant no new leases; the engine ends with the last one, at once where there is none."""
        if not engine.leases:
            self.stop(engine)
            return
        engine.state = step(engine.state, Trigger.DRAIN)
        engine.for_room = for_room

    def let_go(self, engine: Engine, *, now: bool, for_room: bool = False) -> None:
        """Bring the engine to its end from whatever state: after its requests, or `now`."""
        if engine.state is EngineState.STOPPING:
            return
        if now or engine.state in STARTING:
            self.stop(engine)
        elif engine.state is EngineState.DRAINING:
            engine.for_room = engine.for_room and for_room
        else:
            self.drain(engine, for_room=for_room)

    def remove(self, engine: Engine) -> None:
        """Remove an engine that is gone; `engine.state` tells how it went."""
        del self.engines[engine.id]
        model = engine.model
        model.engines.remove(engine)
        model.last = engine.state
        for request in engine.leases:
            self.leased.pop(request, None)
        engine.leases.clear()
        if engine.ordered is not None:
            self.vacated[engine.id] = engine.used_bytes
        self.facts += 1

    def refuse_waiting(self, model: Model, failure: Failure) -> None:
        """Tell everybody who waits for the model why they get no engine."""
        for request in model.waiting:
            del self.queued[request]
            self.out.append(RefuseRequest(request, failure))
        model.waiting.clear()


def smoothed(old: float | None, new: float) -> float:
    """Return a running mean in which the newest value counts half."""
    return new if old is None else (old + new) / 2
