"""What clients of other programs' APIs wish of a model: how long it stays, and a larger context."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from supervisor.config.settings import ModelOptions
from supervisor.core.doors.turned import Wishes
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.options import LaunchOptions
from supervisor.core.plan import Placement
from supervisor.core.requests.keys import Key
from supervisor.core.requests.scopes import needed
from supervisor.core.schedule import Pins
from supervisor.errors import SupervisorError
from supervisor.pool.pool import Pool
from supervisor.service.loads import Loads
from supervisor.service.resolve import Asked

_UNLOADING: Final = needed("POST", "/api/v1/models/unload")


@dataclass(frozen=True)
class Keeping:
    """Grants the wishes of clients who may manage models; those of all others are left out without a word."""

    registry: Registry
    pool: Pool
    pins: Pins
    loads: Loads

    async def before(self, entry: ModelEntry, wishes: Wishes, key: Key | None) -> None:
        """Have the model stay for as long as is wished, and have it loaded with the context that is wished."""
        if key is not None and key.may(_UNLOADING) is not None:
            return
        if wishes.keep and self.pins.keep(entry.id, None if math.isinf(wishes.keep) else wishes.keep):
            self.pool.policies_changed()
        if wishes.context is not None:
            await self._grow(entry, wishes.context)

    def after(self, entry: ModelEntry, key: Key | None) -> None:
        """Unload the model, unless it is pinned, or somebody uses it or waits for it."""
        view = self.pool.status(entry.id).view
        idle = not view.leases and not view.waiting and not self.pins(entry.id).pinned
        if idle and (key is None or key.may(_UNLOADING) is None):
            self._unload(entry)

    def unload(self, entry: ModelEntry, key: Key | None) -> None:
        """Unload the model after its requests. Raise Forbidden where the key may not."""
        refusal = None if key is None else key.may(_UNLOADING)
        if refusal is not None:
            raise refusal
        self._unload(entry)

    def _unload(self, entry: ModelEntry) -> None:
        self.pins.let(entry.id)
        if entry.id in self.registry:
            self.loads.ask_unload(entry.id)

    async def _grow(self, entry: ModelEntry, wanted: int) -> None:
        """Load the model anew where one request would have less context than is wanted, and could have more.

        It never has less than before, nor more than is configured or fits: clients that wish different contexts do
        not fight. A model that is not loaded gets what the planner gives it.
        """
        best = self.pool.status(entry.id).best
        present = best.ready.n_ctx if best and best.ready else None
        if best is None or present is None or not isinstance(best.view.plan, Placement):
            return
        streams, own = _streams(entry.options), entry.own_options.ctx_size
        goal = min(wanted, best.view.plan.fitting_ctx, *([own // streams] if own else []))
        if goal <= present:
            return
        with suppress(SupervisorError):  # it goes on with the context that it has
            options = ModelOptions.model_validate({"ctx_size": goal * streams})
            await self.loads.ask(Asked(entry.id, options=options), at_once=True)


def _streams(options: LaunchOptions) -> int:
    """Return among how many requests the context is divided."""
    return 1 if options.parallel is None or options.kv_unified else max(options.parallel, 1)
