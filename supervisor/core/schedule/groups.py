"""Models that may not be loaded together: which of those that are there have to leave for another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from supervisor.core.events import Failure, ModelId
from supervisor.core.plan import Resident
from supervisor.core.schedule.limits import ModelPolicy
from supervisor.core.schedule.state import Model, State


def excludes(state: State, model: Model, other: Model) -> bool:
    """Whether the two are different models that may not be loaded together."""
    return model is not other and state.policy_of(model.id).excludes(state.policy_of(other.id))


def barred_by(
    policy_of: Callable[[ModelId], ModelPolicy], model: ModelId, residents: Iterable[Resident]
) -> tuple[Resident, ...]:
    """The residents that have to leave before the model may be loaded, however much room there is."""
    own = policy_of(model)
    return tuple(one for one in residents if one.model != model and own.excludes(policy_of(one.model)))


def refusal(model: Model, pinned: Model) -> Failure:
    """A model whose rival stays whatever happens."""
    message = (
        f"'{model.id}' may not be loaded together with '{pinned.id}' (`groups` in the configuration), which is loaded "
        f"and pinned; `supervisor unload {pinned.id}` makes way."
    )
    return Failure("does_not_fit", message)
