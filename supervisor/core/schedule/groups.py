"""Models that may not be loaded together: decide which of those that are loaded have to leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from supervisor.core.plan import Resident
from supervisor.core.schedule.events import Failure, ModelId
from supervisor.core.schedule.limits import ModelPolicy
from supervisor.core.schedule.state import Engine, Model, State


def excludes(state: State, model: Model, other: Model) -> bool:
    """Return whether the two are different models that may not be loaded together."""
    return model is not other and state.policy_of(model.id).excludes(state.policy_of(other.id))


def parted(state: State) -> tuple[Engine, ...]:
    """Return the engines that have to go because one that stays may not be loaded beside them any more.

    Of rivals that run together the pinned one stays, else one with requests, else the one of higher priority, else the
    one that was used last. Pinned ones never go.
    """
    living = [one for one in state.engines.values() if one.ordered is not None and (one.for_room or not one.leaving)]
    living.sort(key=lambda one: _stays(state, one), reverse=True)
    staying: list[Engine] = []
    for one in living:
        pinned = state.policy_of(one.model.id).pinned
        if pinned or not any(excludes(state, one.model, other.model) for other in staying):
            staying.append(one)
    return tuple(one for one in living if one not in staying)


def _stays(state: State, engine: Engine) -> tuple[bool, bool, int, float, int]:
    policy = state.policy_of(engine.model.id)
    return policy.pinned, bool(engine.leases), policy.priority, engine.idle_since, engine.id


def barred_by(
    policy_of: Callable[[ModelId], ModelPolicy], model: ModelId, residents: Iterable[Resident]
) -> tuple[Resident, ...]:
    """Return the residents that have to leave before the model may be loaded, however much room there is."""
    own = policy_of(model)
    return tuple(one for one in residents if one.model != model and own.excludes(policy_of(one.model)))


def refusal(model: ModelId, pinned: ModelId) -> Failure:
    """Return the failure of a model whose rival stays whatever happens."""
    message = (
        f"'{model}' may not be loaded together with '{pinned}' (`groups` in the configuration), which is loaded "
        f"and pinned; `supervisor unload {pinned}` makes way."
    )
    return Failure("does_not_fit", message)
