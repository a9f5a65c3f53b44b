"""The one entry to the scheduler.

Every event is taken by one function, then everything is settled: free slots are lent, engines that are missing are
reserved, room is made for them, idle ones end.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.core.plan import Resident
from supervisor.core.schedule import carry, crash, groups, idle, queue, replicas, rooms
from supervisor.core.schedule.events import (
    Command,
    EngineAdopted,
    EngineBecameReady,
    EngineGone,
    EngineHung,
    EngineId,
    EngineOutgrown,
    EngineSpawned,
    Event,
    Failure,
    LaunchChanged,
    LoadAsked,
    ModelId,
    PolicyChanged,
    RequestArrived,
    RequestDone,
    RequestId,
    RoomSeen,
    ShutdownAsked,
    StopEngine,
    TimePassed,
    UnloadAsked,
)
from supervisor.core.schedule.lifecycle import EngineState, Trigger, step
from supervisor.core.schedule.limits import ModelPolicy, SchedulerLimits
from supervisor.core.schedule.state import Engine, Model, Planner, State, smoothed
from supervisor.core.schedule.view import ModelView, view_of

UNLOADED = Failure("load_cancelled", "The model was unloaded while the request waited; repeat it to load the model.")


class Scheduler:
    """The only place that decides which engine lives and who may use it.

    Args:
        planner: where a model would go beside given residents, by the newest look at the machine.
        policy_of: what is set for a model; asked whenever it matters, so that it may change (tell PolicyChanged).
        limits: of the whole.
        limits_of: what they are from the next PolicyChanged on; None: they stay.
    """

    def __init__(
        self,
        planner: Planner,
        policy_of: Callable[[ModelId], ModelPolicy] = lambda model: ModelPolicy(),
        limits: SchedulerLimits | None = None,
        limits_of: Callable[[], SchedulerLimits] | None = None,
    ) -> None:
        self._state = State(planner, policy_of, limits or SchedulerLimits(), limits_of)

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event, and return the commands to carry out, in this order. `now`: monotonic seconds."""
        state = self._state
        if state.wake_at is not None and now >= state.wake_at:
            _settle(state, now)  # what was due comes first, even if TimePassed is late
        gives_back = isinstance(event, RequestDone) and event.request in state.leased
        _HANDLERS[type(event)](state, event, now)
        if gives_back and _at_rest(state, now):
            state.wake_at = idle.next_wake(state, now)
        elif not _changes_no_more(state, event):
            _settle(state, now)
            state.wake_at = idle.next_wake(state, now)
        commands, state.out = state.out, []
        return commands

    @property
    def next_wake(self) -> float | None:
        """Time to tell TimePassed, if nothing else happens before; None if there is nothing to wait for."""
        return self._state.wake_at

    def view(self, model: ModelId) -> ModelView:
        """Return a snapshot of one model."""
        return view_of(self._state, self._state.models.get(model, Model(model)))

    def forget(self, model: ModelId) -> None:
        """Keep nothing of a model that is not there any more; one that has engines, or is waited for, stays."""
        known = self._state.models.get(model)
        if known is not None and not (known.engines or known.in_demand):
            del self._state.models[model]

    def carried(self) -> carry.CarriedSchedule:
        """Return what the scheduler of the process that takes over is to know."""
        return carry.carried(self._state)

    def restore(self, before: carry.CarriedSchedule) -> None:
        """Know what the scheduler of the process knew that is taken over. To be called before anything else."""
        carry.restore(self._state, before)

    def engines(self) -> tuple[Engine, ...]:
        """Return the engines there are; to be read only."""
        return tuple(self._state.engines.values())

    def waiting(self) -> tuple[tuple[RequestId, ModelId, str | None], ...]:
        """Return the requests that wait, oldest first: number, model, affinity."""
        found = ((one, model.id) for model in self._state.models.values() for one in model.waiting.values())
        by_age = sorted(found, key=lambda pair: pair[0].arrived)
        return tuple((waiter.request, model, waiter.affinity) for waiter, model in by_age)

    def lives(self, engine: EngineId) -> bool:
        """Return whether the engine is still wanted or still there."""
        return engine in self._state.engines

    def residents(self, now: float) -> tuple[Resident, ...]:
        """Return the engines on the machine, for questions to the planner that decide nothing."""
        return rooms.residents(self._state, now)

    @property
    def idle(self) -> bool:
        """True when no engine lives and nobody waits."""
        return not self._state.engines and not self._state.queued


def _changes_no_more(state: State, event: Event) -> bool:
    """Return whether nothing is left to settle.

    For most requests so: slots are free, no engine is missing, nobody waits.
    """
    engine = state.leased.get(event.request) if isinstance(event, RequestArrived) else None
    if engine is None or engine.model.target > len(engine.model.serving):
        return False
    return not any(other.pending for other in state.engines.values())


def _at_rest(state: State, now: float) -> bool:
    """Return whether nobody waits for anything, and every engine just goes on: so at the end of most requests."""
    if state.queued or state.closing:
        return False
    return all(_goes_on(state, engine, now) for engine in state.engines.values())


def _goes_on(state: State, engine: Engine, now: float) -> bool:
    model = engine.model
    if engine.state is not EngineState.READY or engine.worn or model.target > len(model.serving):
        return False
    end = idle.expiry(state, engine)
    return end is None or now < end


def _settle(state: State, now: float) -> None:
    for _ in range(2 + 2 * len(state.engines)):  # each round but the last calls an engine back
        for model in state.models.values():
            queue.lend(state, model, now)
            if model.leaves and not model.waiting:
                _unload(state, model)
        idle.renew(state, now)
        replicas.adjust(state, now)
        if not rooms.place_waiting(state, now):
            break
    idle.expire(state, now)


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _request_done(state: State, event: RequestDone, now: float) -> None:
    if event.request in state.leased:
        queue.give_back(state, event.request, now)
    elif event.request in state.queued:
        queue.leave(state, state.queued[event.request], event.request)


# ── commands from people ─────────────────────────────────────────────────────────────────────────────────────────


def _load_asked(state: State, event: LoadAsked, now: float) -> None:
    if state.closing:
        return
    model = state.model(event.model)
    model.leaves = False
    model.forgive()
    model.target = max(model.target, state.policy_of(model.id).replicas_min)
    if event.fresh:
        for engine in list(model.engines):
            state.let_go(engine, now=False)
    if not any(engine.state is EngineState.READY for engine in model.engines) and model.wanted_since is None:
        model.wanted_since = now


def _unload_asked(state: State, event: UnloadAsked, now: float) -> None:
    model = state.model(event.model)
    model.wanted_since = None
    model.forgive()
    model.failure = None
    if event.serves_waiting and model.waiting:
        model.leaves = True
        return
    state.refuse_waiting(model, UNLOADED)
    _unload(state, model, now=event.now)
    if not model.engines:
        model.last = None


def _unload(state: State, model: Model, *, now: bool = False) -> None:
    model.leaves = False
    model.target = 0
    for engine in list(model.engines):
        state.let_go(engine, now=now)


def _shutdown_asked(state: State, event: ShutdownAsked, now: float) -> None:
    at_once = event.now or state.closing
    if not state.closing:
        state.closing = True
        state.close_at = now + state.limits.drain
        for model in state.models.values():
            model.wanted_since = None
            state.refuse_waiting(model, queue.STOPPING_DOWN)
    for engine in list(state.engines.values()):
        if at_once and engine.state is EngineState.STOPPING:
            state.out.append(StopEngine(engine.id, now=True))
        elif at_once:
            state.stop(engine, now=True)
        else:
            state.let_go(engine, now=False)


def _time_passed(state: State, event: TimePassed, now: float) -> None:
    """Do nothing: settling, which follows every event, is all there is to do."""


def _policy_changed(state: State, event: PolicyChanged, now: float) -> None:
    state.facts += 1
    if state.limits_of is not None:
        state.limits = state.limits_of()
    for engine in () if state.closing else groups.parted(state):
        state.let_go(engine, now=False)
        replicas.one_less(engine.model)


def _launch_changed(state: State, event: LaunchChanged, now: float) -> None:
    state.facts += 1
    model = state.models.get(event.model)
    if model is None or state.closing:
        return
    model.forgive()
    if model.serving and model.wanted_since is None:
        model.wanted_since = now
    for engine in list(model.engines):
        state.let_go(engine, now=False)


# ── engines ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _room_seen(state: State, event: RoomSeen, now: float) -> None:
    engine = state.engines.get(event.engine)
    if engine is not None and engine.looking is not None:
        rooms.seen(state, engine, event.failure, now)


def _engine_spawned(state: State, event: EngineSpawned, now: float) -> None:
    engine = state.engines.get(event.engine)
    if engine is not None and engine.state is EngineState.RESERVED:
        engine.state = step(engine.state, Trigger.SPAWNED)


def _engine_became_ready(state: State, event: EngineBecameReady, now: float) -> None:
    engine = state.engines.get(event.engine)
    if engine is None or engine.state is not EngineState.LOADING:
        return  # told to stop meanwhile
    engine.state = step(engine.state, Trigger.BECAME_READY)
    engine.slots = event.slots
    engine.ready_at = engine.idle_since = now
    model = engine.model
    model.failure = None
    model.wanted_since = None
    if engine.ordered is not None:
        model.load_seconds = now - engine.ordered
        state.load_seconds = smoothed(state.load_seconds, model.load_seconds)


def _engine_hung(state: State, event: EngineHung, now: float) -> None:
    engine = state.engines.get(event.engine)
    if engine is not None and engine.state in {EngineState.READY, EngineState.DRAINING}:
        engine.end = event.failure
        engine.model.fail(event.failure, now)
        state.stop(engine, now=True)


def _engine_outgrown(state: State, event: EngineOutgrown, now: float) -> None:
    engine = state.engines.get(event.engine)
    if engine is not None:
        engine.worn = True


def _engine_gone(state: State, event: EngineGone, now: float) -> None:
    engine = state.engines.get(event.engine)
    if engine is not None:
        crash.gone(state, engine, event, now)


_HANDLERS: dict[type, Callable[..., None]] = {
    RequestArrived: queue.arrive,
    RequestDone: _request_done,
    LoadAsked: _load_asked,
    UnloadAsked: _unload_asked,
    PolicyChanged: _policy_changed,
    LaunchChanged: _launch_changed,
    RoomSeen: _room_seen,
    EngineSpawned: _engine_spawned,
    EngineBecameReady: _engine_became_ready,
    EngineHung: _engine_hung,
    EngineOutgrown: _engine_outgrown,
    EngineGone: _engine_gone,
    EngineAdopted: carry.adopt,
    TimePassed: _time_passed,
    ShutdownAsked: _shutdown_asked,
}
