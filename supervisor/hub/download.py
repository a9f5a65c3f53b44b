"""Downloads, each in a process of its own: shared by all who want the same, ended when nobody wants it any more."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from supervisor.core.repository import RepoFile
from supervisor.errors import DiskFull, DownloadFailed, HubBusy, HubError, HubUnreachable, VerificationFailed
from supervisor.hub.access import HubAccess
from supervisor.hub.api import refusal
from supervisor.hub.cachedir import HubCache
from supervisor.hub.jobs import run_job
from supervisor.hub.listing import Repository
from supervisor.hub.nearby import Nearby

Json = dict[str, Any]

_WORKER = "supervisor.hub.worker"
_RATE_SECONDS = 5.0
_ROOM = 64 << 20  # bytes that stay free beside a download
_GIB = 1 << 30


@dataclass
class Progress:
    """The progress of a download, in bytes. What was in the cache before is not part of it.

    stage: waiting, downloading or checking. files: done and total by path. source: whose bytes come now: `hub`, or
    `node NAME`; None: nobody's yet.
    """

    repo: str
    stage: str = "waiting"
    files: dict[str, list[int]] = field(default_factory=dict)
    note: str | None = None
    source: str | None = None
    _times: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def done(self) -> int:
        return sum(done for done, _ in self.files.values())

    @property
    def total(self) -> int:
        return sum(total for _, total in self.files.values())

    @property
    def share(self) -> float | None:
        """The share that is done, 0 to 1; None if the total is unknown."""
        return self.done / self.total if self.total else None

    def arrived(self, path: str, done: int, now: float) -> None:
        """Note what is there of a file."""
        self.files[path] = [done, max(done, self.files.get(path, [0, 0])[1])]
        self._times.append((now, self.done))
        while len(self._times) > 2 and self._times[0][0] < now - _RATE_SECONDS:
            self._times.popleft()

    @property
    def rate(self) -> float | None:
        """Bytes per second of late."""
        if len(self._times) < 2:
            return None
        (begin, first), (end, last) = self._times[0], self._times[-1]
        return max(0.0, (last - first) / (end - begin)) if end > begin else None

    def to_json(self) -> Json:
        """Return it for the status of a model; `eta_seconds` is null if unknown."""
        rate = self.rate
        return {
            "repo": self.repo,
            "stage": self.stage,
            "from": self.source,
            "done_bytes": self.done,
            "total_bytes": self.total,
            "bytes_per_second": round(rate) if rate is not None else None,
            "eta_seconds": round((self.total - self.done) / rate, 1) if rate else None,
            "files": [{"path": path, "done_bytes": d, "total_bytes": t} for path, (d, t) in self.files.items()],
            "note": self.note,
        }


@dataclass
class _Shared:
    task: asyncio.Task[None]
    progress: Progress
    waiters: int = 0


class Downloads:
    """Runs them.

    Args:
        record_dir: where the processes are noted, so that a later daemon ends what a killed one left.
        on_change: called whenever there is something new to tell.
        patience: seconds in which the hub has to begin its answer, and then to send each 64 KiB.

    Attributes:
        free: the bytes that are free on the cache's disk.
        nearby: who is asked for files before the hub is; None: nobody.
    """

    def __init__(
        self,
        access: HubAccess,
        record_dir: Path | None = None,
        on_change: Callable[[], None] = lambda: None,
        patience: float = 60.0,
    ) -> None:
        self.access = access
        self.cache = HubCache(access.cache)
        self.on_change = on_change
        self.free: Callable[[], int] = self.cache.free_bytes
        self.nearby: Nearby | None = None
        self._record_dir = record_dir
        self._patience = patience
        self._shared: dict[tuple[str, ...], _Shared] = {}

    async def fetch(
        self, repository: Repository, files: Sequence[RepoFile], watch: Callable[[Progress], None] = lambda _: None
    ) -> list[Path]:
        """Have files in the cache; return their paths. `watch` is given the progress when it begins.

        Cancelling the last who waits ends the process before the cancellation goes on. Raises DiskFull, HubGated,
        HubTokenNeeded, RepositoryNotFound, HubBusy, HubUnreachable, DownloadFailed, VerificationFailed.
        """
        missing = [file for file in files if self.cache.file(repository.id, repository.commit, file.path) is None]
        if missing:
            await self._share(repository, missing, watch)
        self.cache.keep_ref(repository.id, repository.revision, repository.commit)
        found = [self.cache.file(repository.id, repository.commit, file.path) for file in files]
        return [path for path in found if path is not None]

    def missing_bytes(self, repository: Repository, files: Sequence[RepoFile]) -> int:
        """Return the bytes still to be downloaded, without what is cached under another name or has begun to arrive."""
        missing = [file for file in files if not self.cache.has(repository.id, repository.commit, file)]
        return sum(max(0, (file.size or 0) - self.cache.begun(repository.id, file)) for file in missing)

    def check_room(self, repository: Repository, files: Sequence[RepoFile]) -> None:
        """Raise DiskFull where the missing files have no room."""
        missing, free = self.missing_bytes(repository, files), self.free()
        if missing and missing + _ROOM > free:
            raise DiskFull(
                f"{repository.id} needs {missing / _GIB:.2f} GiB more in {self.cache.folder}, {free / _GIB:.2f} GiB "
                "are free. Make room (`supervisor rm`), choose a smaller variant, or set hub.cache to another disk."
            )

    async def remove(self, paths: Sequence[Path]) -> int:
        """Remove files of snapshots and the contents that nothing else needs; return the bytes that are free now."""
        told = await self._run({"do": "remove", "paths": [str(path) for path in paths]}, lambda _: None)
        if told.get("event") != "removed":
            raise HubError(f"The cache {self.cache.folder} could not be cleaned: {told.get('message')}")
        return int(told["bytes"])

    async def _share(
        self, repository: Repository, files: Sequence[RepoFile], watch: Callable[[Progress], None]
    ) -> None:
        key = (repository.id, repository.commit, *(file.path for file in files))
        shared = self._shared.get(key)
        if shared is None:
            self.check_room(repository, files)
            progress = Progress(repository.id, files={file.path: [0, file.size or 0] for file in files})
            shared = _Shared(asyncio.create_task(self._download(repository, files, progress)), progress)
            self._shared[key] = shared
            shared.task.add_done_callback(lambda _: self._shared.pop(key, None))
        shared.waiters += 1
        try:
            watch(shared.progress)
            await asyncio.shield(shared.task)
        finally:
            shared.waiters -= 1
            if not shared.waiters and not shared.task.done():
                self._shared.pop(key, None)
                shared.task.cancel()
                await asyncio.wait({shared.task})

    async def _download(self, repository: Repository, files: Sequence[RepoFile], progress: Progress) -> None:
        def heard(line: Mapping[str, Any]) -> None:
            self._heard(line, progress)

        kept: Mapping[str, int] = {}
        if self.nearby is not None:
            kept = await self.nearby.fetch(repository, files, heard)
            files = [file for file in files if self.cache.file(repository.id, repository.commit, file.path) is None]
        if not files:
            return
        progress.source = "hub"
        job = {"do": "download", "repo": repository.id, "commit": repository.commit, "verify": True}
        job["patience"] = self._patience
        wanted = [{**asdict(file), "kept": kept.get(file.path, 0)} for file in files]
        told = await self._run({**job, "files": wanted}, heard)
        if told.get("event") == "error":
            raise self._error(told, repository)

    def _heard(self, line: Mapping[str, Any], progress: Progress) -> None:
        path, event = line.get("path"), line["event"]
        progress.note = None
        if event == "source":
            progress.source = str(line["from"])
        elif event == "progress" and path:
            progress.stage = "downloading"
            progress.arrived(path, int(line["done"]), time.monotonic())
        elif event == "checking":
            progress.stage = "checking"
        elif event == "done" and path:
            progress.arrived(path, progress.files.get(path, [0, 0])[1], time.monotonic())
        elif event == "waiting":
            progress.note = f"the hub is busy, trying again in {line['seconds']:.0f} s"
        self.on_change()

    async def _run(self, job: Json, heard: Callable[[Json], None]) -> Json:
        return await run_job(_WORKER, job, self.access.child_env(), heard, self._record_dir)

    def _error(self, told: Json, repository: Repository) -> HubError:
        message = str(told.get("message"))
        match told.get("kind"):
            case "full":
                return DiskFull(
                    f"The disk with {self.cache.folder} ran full while {repository.id} was downloaded. What "
                    "arrived is kept; make room and try again."
                )
            case "misled":
                return HubError(f"What answers at {self.access.endpoint} {message}; the download was broken off.")
            case "damaged":
                return VerificationFailed(f"{repository.id}: {message}.")
            case "busy":
                return HubBusy(f"The hub at {self.access.endpoint} is busy ({message}). Try later.")
            case "unreachable":
                return HubUnreachable(f"The hub at {self.access.endpoint} does not answer ({message}).")
            case "refused":
                status, code = int(told["status"]), told.get("code")
                return refusal(self.access, repository.id, repository.revision, status, code, message)
            case _:
                return DownloadFailed(
                    f"The download of {repository.id} broke off: {message}. What arrived is kept; try again."
                )
