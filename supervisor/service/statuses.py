"""The models as they are shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.plan import Placement, Seat
from supervisor.core.schedule import Pins
from supervisor.core.schedule.lifecycle import STARTING, EngineState
from supervisor.errors import ModelFileError
from supervisor.files.model_file import parts_of
from supervisor.hub.download import Progress
from supervisor.planning.known import Known
from supervisor.planning.planner import Planner
from supervisor.pool.lease import EngineStatus
from supervisor.pool.pool import Pool, PoolStatus
from supervisor.service.abilities import Abilities, abilities_of
from supervisor.service.remarks import Remarks
from supervisor.service.status import EngineShown, LoadError, ModelStatus

_UNTOLD = frozenset({"fits", "model", "estimate", "evict"})  # of a plan that is carried out already


@dataclass(frozen=True)
class Statuses:
    """Asks everybody who knows something of a model.

    Attributes:
        downloads: those for loads, by model.
        to_epoch: pool clock → seconds since 1970.
        alone: a model's status tells nothing of other models.
    """

    registry: Registry
    pool: Pool
    planner: Planner
    pins: Pins
    remarks: Remarks
    downloads: Mapping[str, Progress]
    to_epoch: Callable[[float], float]
    alone: bool = False

    def limited(self, sees: Callable[[str], bool]) -> Statuses:
        """Return those of models that are seen."""
        return replace(self, registry=self.registry.limited(sees), alone=True)

    def all(self) -> list[ModelStatus]:
        """Every model's."""
        return [self._of(entry) for entry in self.registry]

    def of(self, name: str) -> ModelStatus:
        """One model's; raises ModelNotFound."""
        return self._of(self.registry.find(name))

    def follow(self, name: str) -> AsyncIterator[ModelStatus]:
        """A model's now and after every change, also once it is forgotten; raises ModelNotFound."""
        return self._followed(self.registry.find(name))

    def engine_info(self, model: str) -> Mapping[str, Any]:
        """Return what the model's engine says of it in its own list of models; empty if none is ready."""
        best = self.pool.status(model).best
        return best.ready.info if best and best.ready else {}

    async def _followed(self, entry: ModelEntry) -> AsyncIterator[ModelStatus]:
        async with aclosing(self.pool.follow(entry.id)) as changes:
            async for _ in changes:
                entry = self.registry.find(entry.id) if entry.id in self.registry else entry
                yield self._of(entry)

    def _of(self, entry: ModelEntry) -> ModelStatus:
        pool, download, remark = self.pool.status(entry.id), self.downloads.get(entry.id), self.remarks.of(entry.id)
        view, best = pool.view, pool.best
        ready = best.ready if best else None
        progress = best.progress if best and view.state in STARTING else None
        pid = best.pid if best else None
        found = ModelStatus(
            id=entry.id,
            aliases=entry.aliases,
            source=entry.source.value,
            path=entry.path,
            hub=entry.hub,
            state="unloaded" if view.state is None or view.state is EngineState.STOPPED else view.state.value,
            stage=progress.stage if progress else download.stage if download else None,
            progress=progress.value if progress else download.share if download else None,
            download=download.to_json() if download else None,
            pid=pid,
            n_ctx=ready.n_ctx if ready else None,
            n_slots=ready.n_slots if ready else None,
            leases=view.leases,
            waiting=view.waiting,
            loaded_at=self._when(best.ready_at if best else None),
            load_seconds=best.load_seconds if best else None,
            rss_bytes=_resident_bytes(pid),
            size_bytes=_file_bytes(entry.path),
            footprint=ready.footprint.used_bytes if ready and ready.footprint else None,
            pinned=self.pins(entry.id).pinned,
            expires_at=self._when(view.expires_at),
            given=entry.given,
            plan=_plan(best),
            error=_error(pool),
            failed_at=self._when(view.failed_at),
            engines=[_engine(engine) for engine in pool.engines],
            note=remark.note,
            variants=remark.variants,
            abilities=self._abilities(entry, best),
            fallbacks=self.planner.fallback(entry).steps,
        )
        return found.by_itself() if self.alone else found

    def _abilities(self, entry: ModelEntry, best: EngineStatus | None) -> Abilities | None:
        known = self.planner.read(entry.id)
        if not isinstance(known, Known) or known.entry.origin != entry.origin:
            return None
        placement = best.view.plan if best and isinstance(best.view.plan, Placement) else None
        return abilities_of(known, placement, best.ready.n_ctx if best and best.ready else None)

    def _when(self, at: float | None) -> float | None:
        return None if at is None else self.to_epoch(at)


def _plan(best: EngineStatus | None) -> dict[str, Any] | None:
    if best is None or not isinstance(best.view.plan, Placement | Seat):
        return None
    return {name: value for name, value in best.view.plan.to_json().items() if name not in _UNTOLD}


def _engine(engine: EngineStatus) -> EngineShown:
    view = engine.view
    slots = view.slots if engine.ready else None
    return EngineShown(view.engine, view.state.value, engine.pid, view.leases, slots)


def _resident_bytes(pid: int | None) -> int | None:
    if pid is None:
        return None
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except (psutil.Error, OSError):
        return None


def _file_bytes(path: str | None) -> int | None:
    """Of all parts together."""
    try:
        return sum(part.stat().st_size for part in parts_of(Path(path))) if path is not None else None
    except (OSError, ModelFileError):
        return None


def _error(pool: PoolStatus) -> LoadError | None:
    failure = pool.view.failure
    return None if failure is None else LoadError(failure.code, failure.message, failure.log_lines)
