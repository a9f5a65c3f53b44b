"""Who gets an engine, and which engines live. Pure: events in, commands out.

The cases of `RequestArrived`, in order:
 1. the daemon is stopping                     → refuse
 2. the model has a ready engine               → grant
 3. an engine of the model is coming up        → wait with the others
 4. an engine of the model is going away       → wait; a fresh one is started when it is gone
 5. the model has no engine (or a failed one)  → start one, wait

A load that nobody waits for any more, and that nobody asked for by command, is stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from supervisor.core.events import (
    Command,
    EngineBecameReady,
    EngineGone,
    EngineId,
    EngineSpawned,
    Event,
    Failure,
    GrantLease,
    LoadAsked,
    ModelId,
    RefuseRequest,
    RequestArrived,
    RequestDone,
    RequestId,
    ShutdownAsked,
    StartEngine,
    StopEngine,
    UnloadAsked,
)
from supervisor.core.lifecycle import STARTING, EngineState, Trigger, step

STOPPING_DOWN = Failure("shutting_down", "The daemon is stopping; start it again and repeat the request.")
UNLOADED = Failure("load_cancelled", "The model was unloaded while it was loading; repeat the request to load it.")


@dataclass(slots=True)
class _Engine:
    id: EngineId
    state: EngineState = EngineState.RESERVED
    leases: set[RequestId] = field(default_factory=set)


@dataclass(slots=True)
class _Model:
    engine: _Engine | None = None
    waiting: dict[RequestId, None] = field(default_factory=dict)  # an ordered set
    wanted: bool = False  # asked for by command
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ModelView:
    """What the scheduler knows of one model, for status pages. Reading it decides nothing."""

    state: EngineState | None  # None: never had an engine
    engine: EngineId | None
    leases: int
    waiting: int
    failure: Failure | None


class Scheduler:
    """The only place where it is decided which engine lives and who may use it."""

    def __init__(self) -> None:
        # All the state there is: models by id, and the indexes from engine and request to model.
        self._models: dict[ModelId, _Model] = {}
        self._engines: dict[EngineId, ModelId] = {}
        self._requests: dict[RequestId, ModelId] = {}
        self._last_engine: EngineId = 0
        self._closing = False

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event, return what is to be done. `now`: monotonic seconds."""
        handler = _HANDLERS[type(event)]
        return handler(self, event, now)

    def view(self, model: ModelId) -> ModelView:
        """A snapshot of one model."""
        known = self._models.get(model, _Model())
        engine = known.engine
        return ModelView(
            state=engine.state if engine else None,
            engine=engine.id if engine else None,
            leases=len(engine.leases) if engine else 0,
            waiting=len(known.waiting),
            failure=known.failure,
        )

    @property
    def idle(self) -> bool:
        """True when no engine lives and nobody waits."""
        return not self._engines and not any(model.waiting for model in self._models.values())

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _request_arrived(self, event: RequestArrived, now: float) -> list[Command]:
        if self._closing:
            return [RefuseRequest(event.request, STOPPING_DOWN)]
        model = self._model(event.model)
        self._requests[event.request] = event.model
        engine = model.engine
        if engine and engine.state is EngineState.READY:
            engine.leases.add(event.request)
            return [GrantLease(event.request, engine.id)]
        model.waiting[event.request] = None
        return self._start_if_absent(event.model, model)

    def _request_done(self, event: RequestDone, now: float) -> list[Command]:
        model_id = self._requests.pop(event.request, None)
        if model_id is None:
            return []  # refused before
        model = self._models[model_id]
        model.waiting.pop(event.request, None)
        engine = model.engine
        if engine is None:
            return []
        engine.leases.discard(event.request)
        if engine.state is EngineState.DRAINING and not engine.leases:
            return [self._stop(engine)]
        if engine.state in STARTING and not model.waiting and not model.wanted:
            return [self._stop(engine)]
        return []

    # ── commands from people ─────────────────────────────────────────────────────────────────────────────────────

    def _load_asked(self, event: LoadAsked, now: float) -> list[Command]:
        if self._closing:
            return []
        model = self._model(event.model)
        model.wanted = True
        return self._start_if_absent(event.model, model)

    def _unload_asked(self, event: UnloadAsked, now: float) -> list[Command]:
        model = self._model(event.model)
        model.wanted = False
        model.failure = None
        refusals = self._refuse_waiting(model, UNLOADED)
        engine = model.engine
        if engine is None or engine.state in {EngineState.STOPPING, EngineState.STOPPED, EngineState.FAILED}:
            if engine and engine.state is EngineState.FAILED:
                model.engine = None
            return refusals
        if engine.leases and not event.now:
            if engine.state is EngineState.READY:
                engine.state = step(engine.state, Trigger.DRAIN)
            return refusals
        return [*refusals, self._stop(engine)]

    def _shutdown_asked(self, event: ShutdownAsked, now: float) -> list[Command]:
        self._closing = True
        commands: list[Command] = []
        for model in self._models.values():
            model.wanted = False
            commands += self._refuse_waiting(model, STOPPING_DOWN)
            engine = model.engine
            if engine and engine.id in self._engines and engine.state is not EngineState.STOPPING:
                commands.append(self._stop(engine))
        return commands

    # ── engines ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _engine_spawned(self, event: EngineSpawned, now: float) -> list[Command]:
        engine = self._engine(event.engine)
        if engine and engine.state is EngineState.RESERVED:
            engine.state = step(engine.state, Trigger.SPAWNED)
        return []

    def _engine_became_ready(self, event: EngineBecameReady, now: float) -> list[Command]:
        engine = self._engine(event.engine)
        if engine is None or engine.state is not EngineState.LOADING:
            return []  # told to stop meanwhile
        engine.state = step(engine.state, Trigger.BECAME_READY)
        model = self._models[self._engines[event.engine]]
        granted = list(model.waiting)
        model.waiting.clear()
        engine.leases.update(granted)
        return [GrantLease(request, engine.id) for request in granted]

    def _engine_gone(self, event: EngineGone, now: float) -> list[Command]:
        engine = self._engine(event.engine)
        if engine is None:
            return []
        model_id = self._engines.pop(event.engine)
        model = self._models[model_id]
        was_starting = engine.state in STARTING
        engine.state = step(engine.state, Trigger.EXITED)
        engine.leases.clear()
        if engine.state is EngineState.STOPPED:
            return self._start_again(model_id, model)
        model.failure = event.failure or Failure("engine_lost", "The engine ended without a reason.")
        if was_starting:
            model.wanted = False
            return self._refuse_waiting(model, model.failure)
        return self._start_again(model_id, model)

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _model(self, model: ModelId) -> _Model:
        return self._models.setdefault(model, _Model())

    def _engine(self, engine: EngineId) -> _Engine | None:
        model_id = self._engines.get(engine)
        return self._models[model_id].engine if model_id is not None else None

    def _start_if_absent(self, model_id: ModelId, model: _Model) -> list[Command]:
        if model.engine and model.engine.id in self._engines:
            return []
        return self._start(model_id, model)

    def _start_again(self, model_id: ModelId, model: _Model) -> list[Command]:
        if self._closing or not (model.waiting or (model.wanted and model.failure is None)):
            return []
        return self._start(model_id, model)

    def _start(self, model_id: ModelId, model: _Model) -> list[Command]:
        self._last_engine += 1
        model.engine = _Engine(self._last_engine)
        model.failure = None
        self._engines[self._last_engine] = model_id
        return [StartEngine(self._last_engine, model_id)]

    def _stop(self, engine: _Engine) -> StopEngine:
        engine.state = step(engine.state, Trigger.STOP)
        return StopEngine(engine.id)

    def _refuse_waiting(self, model: _Model, failure: Failure) -> list[Command]:
        refused = list(model.waiting)
        model.waiting.clear()
        for request in refused:
            self._requests.pop(request, None)
        return [RefuseRequest(request, failure) for request in refused]


_HANDLERS: dict[type, Callable[..., list[Command]]] = {
    RequestArrived: Scheduler._request_arrived,
    RequestDone: Scheduler._request_done,
    LoadAsked: Scheduler._load_asked,
    UnloadAsked: Scheduler._unload_asked,
    EngineSpawned: Scheduler._engine_spawned,
    EngineBecameReady: Scheduler._engine_became_ready,
    EngineGone: Scheduler._engine_gone,
    ShutdownAsked: Scheduler._shutdown_asked,
}
