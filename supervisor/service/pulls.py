"""Downloads without a load: begun, followed, ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from supervisor.core.models.registry import Registry
from supervisor.core.repository import HubReference, is_mlx
from supervisor.errors import InvalidRequest, LoadCancelled, ModelNotFound, SupervisorError, TooManyDownloads
from supervisor.hub.cachedir import Cached
from supervisor.hub.download import Progress
from supervisor.hub.models import Chosen
from supervisor.hub.threads import ask_hub
from supervisor.models.fetch import Fetcher
from supervisor.pool.pool import Pool
from supervisor.service.resolve import Asked, Resolver
from supervisor.service.variants import Variants

MOST_UNATTENDED = 16
"""Downloads that nobody waits for."""

Json = dict[str, Any]


@dataclass(eq=False)
class _Pull:
    model: str
    task: asyncio.Task[None]
    progress: Progress | None = None


class Pulls:
    """What the routers ask about downloads."""

    def __init__(
        self, fetcher: Fetcher, registry: Registry, pool: Pool, resolver: Resolver, variants: Variants
    ) -> None:
        self._fetcher = fetcher
        self._hub = fetcher.hub
        self._registry = registry
        self._pool = pool
        self._resolver = resolver
        self._variants = variants
        self._pulls: set[_Pull] = set()
        self._unattended: dict[tuple[str, str], asyncio.Task[None]] = {}  # by reference and commit

    async def find(self, target: str, *, update: bool) -> tuple[Json, Chosen]:
        """Find what is to be fetched for a target, and how it stands: `model`, `commit`, `previous`, `updated`.

        With `update` the hub is asked for the newest commit. Raises InvalidRequest, and as `Resolver.resolve`.
        """
        reference = self._hub.parse(target)
        if reference is None:
            raise InvalidRequest(f"'{target}' is no model of a hub; it looks like owner/repo:Q4_K_M.", param="model")
        before = await asyncio.to_thread(self._hub.cache.commit_of, reference.repo, reference.revision)
        if update:
            chosen = await self._newest(reference)
        else:
            answer = await self._resolver.resolve(Asked(target))
            if answer.entry.hub is None:
                raise InvalidRequest(f"'{target}' is no model of a hub.", param="model")
            entry = await self._variants.with_variant(answer.entry, self._pool)
            chosen = await self._fetcher.find(entry)
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
        work = asyncio.ensure_future(self._hub.fetch(chosen, vision=True, watch=lambda shown: begun(shown)))
        pull = _Pull(name, work)  # type: ignore[arg-type]  # the result is not looked at
        self._pulls.add(pull)

        def begun(shown: Progress) -> None:
            pull.progress = shown

        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled():
                raise LoadCancelled(f"The download of {name} was called off.") from None
            work.cancel()
            await asyncio.wait({work})
            raise
        finally:
            self._pulls.discard(pull)
        files = chosen.files(vision=True)
        size = sum(file.size or 0 for file in files)
        return {"files": [{"path": file.path, "size_bytes": file.size} for file in files], "size_bytes": size}

    def begin(self, chosen: Chosen) -> None:
        """Download it, whoever leaves; once, however often it is asked for. Raises TooManyDownloads."""
        key = (chosen.reference, chosen.repository.commit)
        if key in self._unattended:
            return
        if len(self._unattended) >= MOST_UNATTENDED:
            raise TooManyDownloads(
                f"{MOST_UNATTENDED} downloads are under way; wait for one, or remove it.", retry_after=60
            )
        self._unattended[key] = asyncio.ensure_future(self._fetch_quietly(chosen))
        self._unattended[key].add_done_callback(lambda _: self._unattended.pop(key))

    async def _fetch_quietly(self, chosen: Chosen) -> None:
        with suppress(SupervisorError):  # nobody is there to be told
            await self.fetch(chosen)

    async def follow(self, chosen: Chosen) -> AsyncIterator[Json]:
        """Progress while it is downloaded, and at the end the files."""
        work = asyncio.ensure_future(self.fetch(chosen))
        try:
            while not work.done():
                shown = self._progress_of(chosen.reference)
                if shown is not None:
                    yield {"state": "downloading", "download": shown.to_json()}
                await asyncio.wait({work}, timeout=0.25)
            yield {"state": "done", **work.result()}
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})

    def repositories(self) -> frozenset[str]:
        """Those of which something is being downloaded, for a load or without."""
        shown = [pull.progress for pull in self._pulls if pull.progress]
        return frozenset(one.repo for one in (*shown, *self._fetcher.progress.values()))

    async def stop(self, reference: HubReference) -> bool:
        """End the downloads of what a reference names, those for loads too; whether there were any."""
        pulls = [pull.task for pull in self._pulls if same_model(reference, self._hub.parse(pull.model))]
        for task in pulls:
            task.cancel()
        if pulls:
            await asyncio.wait(pulls)
        fetching = self._fetcher.progress
        loads = [entry for entry in self._registry if entry.id in fetching]
        loads = [entry for entry in loads if same_model(reference, self._hub.parse(entry.hub or ""))]
        for entry in loads:
            self._registry.set_options(entry.id, None)
            await self._pool.unload(entry.id, now=True)
        return bool(pulls or loads)

    async def _newest(self, reference: HubReference) -> Chosen:
        found = await ask_hub(self._hub.look, reference)
        if len(found.candidates) == 1:
            return found.choice(found.candidates[0])
        there = [one for one in await asyncio.to_thread(self._hub.scan) if means(reference, one)]
        names = {one.variant.name for one in there}
        same = [variant for variant in found.candidates if variant.name in names]
        if not same:
            raise ModelNotFound(f"Nothing of {reference.repo} is on disk; name a variant to pull.", param="model")
        return found.choice(same[0])

    def _progress_of(self, model: str) -> Progress | None:
        return next((pull.progress for pull in self._pulls if pull.model == model), None)


def means(reference: HubReference, one: Cached) -> bool:
    """Return whether a reference names, perhaps among others, what is on disk.

    A repository's name alone does not mean its files for MLX: other programs use the same ones.
    """
    if reference.repo.lower() != one.repo.lower():
        return False
    if reference.revision is not None and reference.revision not in {one.commit, *one.refs}:
        return False
    if reference.quant is not None:
        return reference.quant.upper() in {one.variant.quant, one.variant.name.upper()}
    if reference.path is None:
        return not is_mlx(one.variant)
    return reference.path.lower() in {part.path.lower() for part in one.variant.parts}


def same_model(one: HubReference, other: HubReference | None) -> bool:
    """Return whether the other is what the one names, or part of it."""
    if other is None or one.repo.lower() != other.repo.lower():
        return False
    return (one.quant or "").lower() in {"", (other.quant or "").lower()} and one.path in {None, other.path}
