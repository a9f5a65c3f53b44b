"""Models on disk: what there is, downloads without a load, removal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.choosing import Asked, entry_for
from supervisor.core.catalog import HubReference, Kind, kind_of
from supervisor.core.lifecycle import LEAVING, STARTING, EngineState
from supervisor.errors import InvalidRequest, LoadCancelled, ModelInUse, ModelNotFound
from supervisor.hub.api import Repository
from supervisor.hub.cachedir import Cached
from supervisor.hub.download import Progress
from supervisor.hub.models import Chosen, HubModels
from supervisor.hub.stores import store_models
from supervisor.hub.verify import verify_cached
from supervisor.planning import Planner
from supervisor.pool import Pool
from supervisor.prepare import EngineMaker

Json = dict[str, Any]
_AT_WORK = STARTING | LEAVING | {EngineState.READY}


@dataclass
class _Pull:
    task: asyncio.Task[None]
    progress: Progress | None = None


class Disk:
    """What the routers ask about files."""

    def __init__(self, maker: EngineMaker, planner: Planner, pool: Pool) -> None:
        self._maker = maker
        self._planner = planner
        self._pool = pool
        self._pulls: dict[str, _Pull] = {}
        self._changed = asyncio.Condition()

    @property
    def _hub(self) -> HubModels:
        return self._maker.fetcher.hub

    async def models(self) -> list[Json]:
        """Every model on disk: of the hub's cache, and what other programs keep."""
        cached = await asyncio.to_thread(self._hub.scan)
        used = self._paths_in_use()
        mine = [_shown(one, used) for one in cached]
        return mine + await asyncio.to_thread(store_models, self._hub.access.env)

    async def pull(self, target: str, *, update: bool) -> tuple[Json, Chosen]:
        """What is to be fetched for a target, and how it stands: `model`, `commit`, `previous`, `updated`.

        With `update` the hub is asked for the newest commit. Raises InvalidRequest, and as `entry_for`.
        """
        reference = self._hub.parse(target)
        if reference is None:
            raise InvalidRequest(f"'{target}' is no model of a hub; it looks like owner/repo:Q4_K_M.", param="model")
        before = await asyncio.to_thread(self._hub.cache.commit_of, reference.repo, reference.revision)
        if update:
            chosen = await self._newest(reference)
        else:
            answer = await entry_for(self._maker, self._planner, Asked(target), self._pool.residents)
            if answer.entry.hub is None:
                raise InvalidRequest(f"'{target}' is no model of a hub.", param="model")
            chosen = await asyncio.to_thread(self._maker.fetcher.chosen, answer.entry)
        commit = chosen.repository.commit
        told = {
            "model": chosen.reference,
            "commit": commit,
            "previous": before,
            "updated": before not in {None, commit},
        }
        return told, chosen

    async def fetch(self, chosen: Chosen) -> Json:
        """Download it, or wait for the download that runs; the files. Cancelled by `remove` and by nobody waiting."""
        name = chosen.reference
        work = asyncio.ensure_future(self._hub.fetch(chosen, vision=True, watch=lambda shown: self._begin(name, shown)))
        pull = self._pulls[name] = _Pull(work)  # type: ignore[arg-type]  # the result is not looked at
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled():
                raise LoadCancelled(f"The download of {name} was called off.") from None
            work.cancel()
            await asyncio.wait({work})
            raise
        finally:
            if self._pulls.get(name) is pull:
                del self._pulls[name]
        files = chosen.files(vision=True)
        size = sum(file.size or 0 for file in files)
        return {"files": [{"path": file.path, "size_bytes": file.size} for file in files], "size_bytes": size}

    async def follow(self, chosen: Chosen) -> AsyncIterator[Json]:
        """Progress while it is downloaded, and at the end the files."""
        work = asyncio.ensure_future(self.fetch(chosen))
        try:
            while not work.done():
                pull = self._pulls.get(chosen.reference)
                if pull is not None and pull.progress is not None:
                    yield {"state": "downloading", "download": pull.progress.to_json()}
                await asyncio.wait({work}, timeout=0.25)
            yield {"state": "done", **work.result()}
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})

    async def remove(self, target: str) -> Json:
        """Free what a target takes on disk; a download of it ends first. Raises ModelNotFound, ModelInUse."""
        reference = self._hub.parse(self._reference_of(target))
        if reference is None:
            raise ModelNotFound(
                f"'{target}' is no model of a hub; files of other programs are left alone.", param="model"
            )
        stopped = await self._stop_pulls(reference)
        found = [one for one in await asyncio.to_thread(self._hub.scan) if _means(reference, one)]
        if not found:
            if stopped:
                return {"model": target, "freed_bytes": 0, "files": []}
            raise ModelNotFound(f"Nothing of {target} is on disk; `supervisor models` shows what is.", param="model")
        used = self._paths_in_use()
        busy = [one for one in found if used & set(one.files)]
        if busy:
            raise ModelInUse(f"{_name(busy[0])} is loaded; unload it first.", param="model")
        files = _with_companions([path for one in found for path in one.files], used)
        freed = await self._hub.downloads.remove(files)
        gone = {str(path) for path in files}
        for entry in list(self._maker.registry):
            if entry.hub is not None and entry.path in gone:
                self._maker.registry.locate(entry.id, None)
        return {"model": target, "freed_bytes": freed, "files": [str(path) for path in files]}

    async def verify(self, target: str | None) -> list[Json]:
        """Check sizes, hashes and headers of what is on disk; of everything without a target."""
        reference = self._hub.parse(self._reference_of(target)) if target else None
        cached = await asyncio.to_thread(self._hub.scan)
        found = [one for one in cached if target is None or (reference is not None and _means(reference, one))]
        if target and not found:
            raise ModelNotFound(f"Nothing of {target} is on disk; `supervisor models` shows what is.", param="model")
        return [
            {
                "model": _name(one),
                "commit": one.commit,
                "problems": await asyncio.to_thread(verify_cached, self._hub, one),
            }
            for one in found
        ]

    async def _newest(self, reference: HubReference) -> Chosen:
        found = await asyncio.to_thread(self._hub.look, reference)
        if len(found.candidates) == 1:
            return found.choice(found.candidates[0])
        there = [one for one in await asyncio.to_thread(self._hub.scan) if _means(reference, one)]
        names = {one.variant.name for one in there}
        same = [variant for variant in found.candidates if variant.name in names]
        if not same:
            raise ModelNotFound(f"Nothing of {reference.repo} is on disk; name a variant to pull.", param="model")
        return found.choice(same[0])

    def _begin(self, name: str, progress: Progress) -> None:
        if name in self._pulls:
            self._pulls[name].progress = progress

    def _reference_of(self, target: str) -> str:
        """The reference behind an id or alias; what is none is one itself."""
        with suppress(ModelNotFound):
            return self._maker.registry.find(target).hub or target
        return target

    async def _stop_pulls(self, reference: HubReference) -> bool:
        """End the downloads of what is to be removed; whether there were any."""
        pulls = [pull.task for name, pull in self._pulls.items() if _same(reference, self._hub.parse(name))]
        for task in pulls:
            task.cancel()
        if pulls:
            await asyncio.wait(pulls)
        fetching = self._maker.fetcher.progress
        loads = [entry for entry in self._maker.registry if entry.id in fetching]
        loads = [entry for entry in loads if _same(reference, self._hub.parse(entry.hub or ""))]
        for entry in loads:
            await self._pool.unload(entry.id, now=True)
        return bool(pulls or loads)

    def _paths_in_use(self) -> frozenset[Path]:
        """The files of engines that live, projectors included."""
        found: set[Path] = set()
        for entry in self._maker.registry:
            if self._pool.status(entry.id).view.state in _AT_WORK and entry.path is not None:
                found.add(Path(entry.path))
                found.update(Path(entry.path).parent.glob("*mmproj*"))
        return frozenset(found)


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
        "loaded": bool(used & set(one.files)),
        "problem": None,
    }


def _means(reference: HubReference, one: Cached) -> bool:
    if reference.repo.lower() != one.repo.lower():
        return False
    if reference.revision is not None and reference.revision not in {one.commit, *one.refs}:
        return False
    if reference.quant is not None:
        return reference.quant.upper() in {one.variant.quant, one.variant.name.upper()}
    return reference.path is None or reference.path.lower() in {part.path.lower() for part in one.variant.parts}


def _same(one: HubReference, other: HubReference | None) -> bool:
    if other is None or one.repo.lower() != other.repo.lower():
        return False
    return (one.quant or "").lower() in {"", (other.quant or "").lower()} and one.path in {None, other.path}


def _with_companions(files: Sequence[Path], used: frozenset[Path]) -> list[Path]:
    """With the projectors of snapshots from which the last model goes."""
    found = list(files)
    for snapshot in {_snapshot(path) for path in files}:
        there = [path for path in snapshot.rglob("*") if path.is_file() and path not in files]
        if not any(kind_of(path.name) is Kind.MODEL for path in there):
            found += [path for path in there if path not in used]
    return found


def _snapshot(path: Path) -> Path:
    """The folder of the commit."""
    parts = path.parts
    at = len(parts) - 1 - parts[::-1].index("snapshots")
    return Path(*parts[: at + 2])
