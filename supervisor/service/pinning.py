"""What people pin."""

from __future__ import annotations

from supervisor.core.models.registry import Registry
from supervisor.core.schedule import ModelPolicy, Pins
from supervisor.pool.pool import Pool
from supervisor.service.status import ModelStatus
from supervisor.service.statuses import Statuses


class Pinning:
    """Keeps models from leaving for idleness or for others' room, or lets them."""

    def __init__(self, registry: Registry, pool: Pool, pins: Pins, statuses: Statuses) -> None:
        self._registry = registry
        self._pool = pool
        self._pins = pins
        self._statuses = statuses

    def pin(self, name: str, *, pinned: bool) -> ModelStatus:
        """Pin a model, or let it go; its status. Raises ModelNotFound."""
        entry = self._registry.find(name)
        self._pins.set(entry.id, pinned)
        self._pool.policies_changed()
        return self._statuses.of(entry.id)

    def policy(self, model: str) -> ModelPolicy:
        """Return the policy that holds for a model now."""
        return self._pins(model)
