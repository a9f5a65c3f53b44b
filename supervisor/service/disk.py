"""Models on disk: what there is, whether it is whole, removal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from supervisor.core.models.registry import Registry
from supervisor.core.repository import HubReference, Kind, kind_of
from supervisor.core.schedule.lifecycle import LEAVING, STARTING, EngineState
from supervisor.errors import ModelInUse, ModelNotFound
from supervisor.hub.cachedir import Cached
from supervisor.hub.listing import Repository
from supervisor.hub.models import Chosen, HubModels, Unfinished
from supervisor.hub.stores import store_models
from supervisor.hub.threads import check_files
from supervisor.hub.verify import verify_cached
from supervisor.pool.pool import Pool
from supervisor.service.pulls import Pulls, means, same_model
from supervisor.system.shared import Shared

Json = dict[str, Any]
_ARRIVING = "it is being downloaded"
_BROKEN_OFF = "its download was broken off; `pull` goes on with it, `rm` removes it"
_AT_WORK = STARTING | LEAVING | {EngineState.READY}


class Disk:
    """What the routers ask about files."""

    def __init__(self, hub: HubModels, registry: Registry, pool: Pool, pulls: Pulls) -> None:
        self._hub = hub
        self._registry = registry
        self._pool = pool
        self._pulls = pulls
        self._lists = Shared[list[Json]]()

    async def models(self) -> list[Json]:
        """Every model on disk: of the hub's cache, what of it is unfinished, and what other programs keep."""
        return await self._lists.get(self._list)

    async def _list(self) -> list[Json]:
        cached = await asyncio.to_thread(self._hub.scan)
        used = self._paths_in_use()
        mine = [_shown(one, used) for one in cached]
        mine += await asyncio.to_thread(self._unfinished, self._pulls.repositories())
        return mine + await asyncio.to_thread(store_models, self._hub.access.env)

    async def remove(self, target: str) -> Json:
        """Free what a target takes on disk; a download of it ends first. Raises ModelNotFound, ModelInUse."""
        reference = self._hub.parse(self._reference_of(target))
        if reference is None:
            raise ModelNotFound(
                f"'{target}' is no model of a hub; files of other programs are left alone.", param="model"
            )
        stopped = await self._pulls.stop(reference)
        found = [one for one in await asyncio.to_thread(self._hub.scan) if means(reference, one)]
        begun = [one for one in await asyncio.to_thread(self._hub.unfinished) if self._is_of(reference, one)]
        if not found and not begun and not stopped:
            raise ModelNotFound(f"Nothing of {target} is on disk; `supervisor models` shows what is.", param="model")
        used = self._paths_in_use()
        busy = [one for one in found if _in_use(one, used)]
        if busy:
            raise ModelInUse(f"{_name(busy[0])} is loaded; unload it first.", param="model")
        files = _with_companions([path for one in found for path in one.files], used)
        freed = await self._hub.downloads.remove(files) if files else 0
        for one in begun:
            freed += one.path.stat().st_size
            one.path.unlink()
        gone = {str(path) for path in (*files, *(one.path for one in begun))}
        for entry in list(self._registry):
            if entry.hub is not None and entry.path in gone:
                self._registry.locate(entry.id, None)
        return {"model": target, "freed_bytes": freed, "files": sorted(gone)}

    async def verify(self, target: str | None) -> list[Json]:
        """Check sizes, hashes and headers of what is on disk; of everything without a target. Cancelled, it stops."""
        reference = self._hub.parse(self._reference_of(target)) if target else None
        cached = await asyncio.to_thread(self._hub.scan)
        found = [one for one in cached if target is None or (reference is not None and means(reference, one))]
        if target and not found:
            raise ModelNotFound(f"Nothing of {target} is on disk; `supervisor models` shows what is.", param="model")
        stopped = threading.Event()
        try:
            return [
                {
                    "model": _name(one),
                    "commit": one.commit,
                    "problems": await check_files(verify_cached, self._hub, one, stopped.is_set),
                }
                for one in found
            ]
        finally:
            stopped.set()

    def _reference_of(self, target: str) -> str:
        """The reference behind an id or alias; what is none is one itself."""
        with suppress(ModelNotFound):
            return self._registry.find(target).hub or target
        return target

    def _unfinished(self, busy: Collection[str]) -> list[Json]:
        found = [one for one in self._hub.unfinished() if one.path.exists()]
        return [_begun(one, _ARRIVING if one.repo in busy else _BROKEN_OFF) for one in found]

    def _is_of(self, reference: HubReference, one: Unfinished) -> bool:
        return same_model(reference, self._hub.parse(one.reference))

    def _paths_in_use(self) -> frozenset[Path]:
        """The files of engines that live, projectors and draft models included, wherever links to them lead."""
        found: set[Path] = set()
        for entry in self._registry:
            if self._pool.status(entry.id).view.state in _AT_WORK:
                options = entry.options
                found.update(Path(path) for path in (entry.path, options.mmproj, options.spec_draft_model) if path)
                if entry.path is not None:
                    found.update(Path(entry.path).parent.glob("*mmproj*"))
        return frozenset(path.resolve() for path in found)


def _name(one: Cached) -> str:
    return Chosen(None, Repository(one.repo, one.commit, one.commit, ()), one.variant, None).reference


def _shown(one: Cached, used: frozenset[Path]) -> Json:
    return {
        "name": _name(one),
        "store": "hub",
        "repo": one.repo,
        "variant": one.variant.name,
        "commit": one.commit,
        "revisions": list(one.refs),
        "size_bytes": one.size,
        "used_at": one.used,
        "path": str(one.files[0]),
        "missing": list(one.variant.missing),
        "loaded": _in_use(one, used),
        "problem": None,
    }


def _begun(one: Unfinished, problem: str) -> Json:
    found = one.path.stat()
    return {
        "name": one.reference,
        "store": "hub",
        "repo": one.repo,
        "variant": None,
        "commit": None,
        "revisions": [],
        "size_bytes": found.st_size,
        "used_at": found.st_mtime,
        "path": str(one.path),
        "missing": [],
        "loaded": False,
        "problem": problem,
    }


def _in_use(one: Cached, used: frozenset[Path]) -> bool:
    return any(path.resolve() in used for path in one.files)


def _with_companions(files: Sequence[Path], used: frozenset[Path]) -> list[Path]:
    """With the projectors of snapshots from which the last model goes."""
    found = list(files)
    for snapshot in {_snapshot(path) for path in files}:
        there = [path for path in snapshot.rglob("*") if path.is_file() and path not in files]
        if not any(kind_of(path.name) is Kind.MODEL for path in there):
            found += [path for path in there if path.resolve() not in used]
    return found


def _snapshot(path: Path) -> Path:
    """The folder of the commit."""
    parts = path.parts
    at = len(parts) - 1 - parts[::-1].index("snapshots")
    return Path(*parts[: at + 2])
