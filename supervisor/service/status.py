"""One model's status as the REST API and the CLI show it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil

from supervisor.core.models.registry import ModelEntry
from supervisor.core.plan import Placement
from supervisor.core.schedule.lifecycle import STARTING, EngineState
from supervisor.errors import ModelFileError
from supervisor.files.model_file import parts_of
from supervisor.hub.download import Progress
from supervisor.pool.lease import EngineStatus
from supervisor.pool.pool import PoolStatus

_UNTOLD = frozenset({"fits", "model", "estimate", "evict"})  # of a plan that is carried out already


def model_status(
    entry: ModelEntry,
    pool: PoolStatus,
    pinned: bool,
    to_epoch: Callable[[float], float],
    download: Progress | None = None,
) -> dict[str, object]:
    """The JSON form. `to_epoch` turns the pool's clock into seconds since 1970.

    Keys: id, aliases, source, path, state, stage, progress (0..1), pid, n_ctx (tokens of one slot), n_slots, leases,
    waiting, loaded_at (epoch s), load_seconds, rss_bytes, size_bytes, footprint (bytes by device), pinned, expires_at
    (epoch s; when it leaves for idleness), given (options by name that hold until it is unloaded), plan (as `plan
    --json` without its estimate), error {code, message, log_lines}, failed_at (epoch s), engines, hub (the reference of
    a model of the hub), download (`Progress.to_json`; None: there is none).
    """
    view, best = pool.view, pool.best
    ready = best.ready if best else None
    progress = best.progress if best and view.state in STARTING else None
    pid = best.pid if best else None
    ready_at = best.ready_at if best else None
    return {
        "id": entry.id,
        "aliases": list(entry.aliases),
        "source": entry.source.value,
        "path": entry.path,
        "hub": entry.hub,
        "state": "unloaded" if view.state is None or view.state is EngineState.STOPPED else view.state.value,
        "stage": progress.stage if progress else download.stage if download else None,
        "progress": progress.value if progress else _share(download) if download else None,
        "download": download.to_json() if download else None,
        "pid": pid,
        "n_ctx": ready.n_ctx if ready else None,
        "n_slots": ready.n_slots if ready else None,
        "leases": view.leases,
        "waiting": view.waiting,
        "loaded_at": _when(ready_at, to_epoch),
        "load_seconds": best.load_seconds if best else None,
        "rss_bytes": _resident_bytes(pid),
        "size_bytes": _file_bytes(entry.path),
        "footprint": ready.footprint.used_bytes if ready and ready.footprint else None,
        "pinned": pinned,
        "expires_at": _when(view.expires_at, to_epoch),
        "given": entry.given,
        "plan": _plan(best),
        "error": _error(pool),
        "failed_at": _when(view.failed_at, to_epoch),
        "engines": [_engine(engine) for engine in pool.engines],
    }


def _when(at: float | None, to_epoch: Callable[[float], float]) -> float | None:
    return None if at is None else to_epoch(at)


def _plan(best: EngineStatus | None) -> dict[str, object] | None:
    if best is None or not isinstance(best.view.plan, Placement):
        return None
    return {name: value for name, value in best.view.plan.to_json().items() if name not in _UNTOLD}


def _share(download: Progress) -> float | None:
    return download.done / download.total if download.total else None


def _engine(engine: EngineStatus) -> dict[str, object]:
    view = engine.view
    return {
        "engine": view.engine,
        "state": view.state.value,
        "pid": engine.pid,
        "leases": view.leases,
        "slots": view.slots if engine.ready else None,
    }


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


def _error(pool: PoolStatus) -> dict[str, object] | None:
    failure = pool.view.failure
    if failure is None:
        return None
    return {"code": failure.code, "message": failure.message, "log_lines": list(failure.log_lines)}
