"""The pins that people set while the daemon runs, over what the configuration says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from supervisor.core.schedule.events import ModelId
from supervisor.core.schedule.limits import ModelPolicy


class Pins:
    """`policy_of` for the scheduler, to be told PolicyChanged after every `set`.

    Args:
        policy_of: what the configuration says.
    """

    def __init__(self, policy_of: Callable[[ModelId], ModelPolicy]) -> None:
        self._policy_of = policy_of
        self._pinned: dict[ModelId, bool] = {}
        self._ttl: dict[ModelId, float | None] = {}

    def __call__(self, model: ModelId) -> ModelPolicy:
        """Return the policy of the model now."""
        policy = self._policy_of(model)
        pinned, ttl = self._pinned.get(model, policy.pinned), self._ttl.get(model, policy.ttl)
        same = pinned == policy.pinned and ttl == policy.ttl
        return policy if same else replace(policy, pinned=pinned, ttl=ttl)

    def told(self) -> tuple[dict[ModelId, bool], dict[ModelId, float | None]]:
        """Return what people have set: pins, and idle seconds."""
        return dict(self._pinned), dict(self._ttl)

    def restore(self, pinned: Mapping[ModelId, bool], ttl: Mapping[ModelId, float | None]) -> None:
        """Set what people had set before."""
        self._pinned.update(pinned)
        self._ttl.update(ttl)

    def set(self, model: ModelId, pinned: bool) -> None:
        """Pin the model, or let it go, until the daemon ends."""
        self._pinned[model] = pinned

    def keep(self, model: ModelId, ttl: float | None) -> bool:
        """Have the model stay for so many idle seconds from now on; None: for ever. Return whether that is new."""
        before = self(model).ttl
        self._ttl[model] = ttl
        return before != ttl

    def let(self, model: ModelId) -> None:
        """Have the model stay as long as the configuration says."""
        self._ttl.pop(model, None)

    def forget(self, model: ModelId) -> None:
        """Let the configuration's word hold again."""
        self._pinned.pop(model, None)
        self._ttl.pop(model, None)
