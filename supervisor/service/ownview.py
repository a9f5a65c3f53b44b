"""This node as it says that it is, to whoever asks for all nodes of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from supervisor.core.cluster.messages import MOST_MODELS
from supervisor.core.cluster.views import MOST_DEVICES, DeviceView, Holding, ModelView, View
from supervisor.service.memory import Memory
from supervisor.service.status import ModelStatus
from supervisor.service.statuses import Statuses

_MOST_TEXT = 255
_HELD = frozenset(one.name for one in fields(Holding))


@dataclass(frozen=True)
class OwnView:
    """Looks at this node. requests: how many are in flight. clock: seconds since 1970."""

    statuses: Statuses
    memory: Memory
    requests: Callable[[], int]
    clock: Callable[[], float] = time.time

    async def look(self) -> View:
        """Return what is there now."""
        devices = (await self.memory.shown())["devices"]
        now = self.clock()
        shown = [one for one in self.statuses.all() if one.state != "unloaded"]
        return View(
            devices=tuple(map(_device, devices[:MOST_DEVICES])),
            models=tuple(_model(one, now) for one in shown[:MOST_MODELS]),
            requests=self.requests(),
        )


def _device(one: Mapping[str, Any]) -> DeviceView:
    return DeviceView(
        name=one["name"][:_MOST_TEXT],
        total_bytes=one["total_bytes"],
        backend=one["backend"][:_MOST_TEXT],
        description=one["description"][:_MOST_TEXT],
        free_bytes=one["free_bytes"],
        others_bytes=one["others_bytes"],
        usable_bytes=max(0, one["usable_bytes"]),
        held=tuple(Holding(**{name: value for name, value in held.items() if name in _HELD}) for held in one["held"]),
    )


def _model(one: ModelStatus, now: float) -> ModelView:
    return ModelView(
        id=one.id,
        state=one.state,
        stage=one.stage,
        progress=one.progress,
        pid=one.pid,
        n_ctx=one.n_ctx,
        n_slots=one.n_slots,
        leases=one.leases,
        waiting=one.waiting,
        rss_bytes=one.rss_bytes,
        pinned=one.pinned,
        loaded_s=_until(now, one.loaded_at),
        leaves_s=None if one.expires_at is None else _until(one.expires_at, now),
        failed_s=_until(now, one.failed_at),
        code=None if one.error is None else one.error.code,
    )


def _until(later: float, earlier: float | None) -> float | None:
    return None if earlier is None else max(0.0, later - earlier)
