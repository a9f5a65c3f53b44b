"""The process that gets files of models from other nodes, before the hub is asked: it can be ended at any moment.

It has the key of this node and no token of the hub; the process that talks to the hub has the token and no key. Nothing
that a node says is believed: its bytes go into the file that the hub's would go to, and count once the size and the
SHA-256 are those that the hub has told. A job is one JSON line on stdin, `Job`; what happens is JSON lines on stdout:

    {"event": "source", "from": "node NAME"}, {"event": "progress", "path", "done", "total"},
    {"event": "checking", "path"}, {"event": "done", "path"},
    {"event": "failed", "node", "message"}: this node is not asked any more
    {"event": "left", "path", "kept"}: it did not come; the first `kept` bytes of what arrived were there before
    {"event": "error", "kind", "message"}: nothing more can be done; `full` is the disk
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec

from supervisor.cluster.kept import dialling
from supervisor.cluster.lenders import Busy, Faulty, Holders, Lender, Lenders
from supervisor.cluster.peerresponse import PeerUnreachable
from supervisor.core.cluster.ranges import Range
from supervisor.core.repository.forms import is_commit, is_plain_path, is_repository, is_sha256, is_size
from supervisor.hub.locked import fault_of, folder_in, locked, no_link
from supervisor.hub.partials import partial_of

_MOST_BUSY: Final = 5
_REPORT_S: Final = 0.1
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Wanted(msgspec.Struct, frozen=True):
    """A file: its path in the repository, its bytes, its hash."""

    path: str
    size: int
    sha256: str


class Job(msgspec.Struct, frozen=True):
    """What is to be done.

    Attributes:
        cache: folder of the hub's cache.
        authority, chain, key: files, by which nodes are dialled.
        patience, asking: seconds, as in `Lenders`.
        part: bytes of one request. The places of a node are shared between requests, so that all get on.
    """

    cache: str
    authority: str
    chain: str
    key: str
    nodes: tuple[Lender, ...]
    repo: str
    commit: str
    files: tuple[Wanted, ...]
    patience: float = 15.0
    asking: float = 10.0
    part: int = 64 << 20


def main() -> int:
    """Do one job; return 0."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # our parent decides, by SIGTERM, which ends us at once
    with contextlib.suppress(AttributeError):  # not on Windows
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a limit on file sizes is an error like any other
    job = msgspec.json.decode(sys.stdin.readline(), type=Job)
    threading.Thread(target=_watch_stdin, daemon=True).start()
    try:
        asyncio.run(Borrower(job, _say).work())
    except OSError as error:
        kind = "full" if error.errno in _FULL else "failed"
        _say({"event": "error", "kind": kind, "message": str(error)})
    return 0


def _watch_stdin() -> None:
    sys.stdin.read()
    os._exit(143)  # nobody wants it any more; the system gives the lock back


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Borrower:
    """Gets files from nodes. say: is given what happens. Raises OSError where the cache cannot be written."""

    def __init__(self, job: Job, say: Callable[[dict[str, Any]], None]) -> None:
        self._job = job
        self._say = say
        self._cache = Path(job.cache)
        context = dialling(Path(job.authority), Path(job.chain), Path(job.key))
        self._lenders = Lenders(job.nodes, context, job.patience, job.asking, self._failed)
        self._from = ""
        self._told_at = 0.0

    async def work(self) -> None:
        """Get all that there is of the files that are wanted."""
        if not (is_repository(self._job.repo) and is_commit(self._job.commit)):
            return
        try:
            for file in self._job.files:
                if is_plain_path(file.path) and is_sha256(file.sha256) and is_size(file.size):
                    await self._get(file)
        finally:
            await self._lenders.close()

    async def _get(self, file: Wanted) -> None:
        blob = folder_in(self._cache, self._job.repo) / "blobs" / file.sha256
        holders = None if blob.exists() else self._lenders.holders(file.sha256, file.size)
        try:
            if holders is not None and await holders.next(()) is None:
                return
            with locked(self._cache, self._job.repo, file.sha256):
                if holders is None or blob.exists() or await self._arrived(file, blob, holders):
                    self._link(file, blob)
                    self._say({"event": "done", "path": file.path})
        finally:
            if holders is not None:
                holders.close()

    async def _arrived(self, file: Wanted, blob: Path, holders: Holders) -> bool:
        """Have a content in the cache, and return whether it is there; what has come of it else stays."""
        blob.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_of(blob.parent, file.sha256)
        kept = await self._added(file, partial, holders)
        if kept is None:
            partial.replace(blob)
            return True
        if not partial.stat().st_size:
            partial.unlink()
        self._say({"event": "left", "path": file.path, "kept": kept})
        return False

    async def _added(self, file: Wanted, partial: Path, holders: Holders) -> int | None:
        """Return None once all of a file has come and is right; else how much of what is there was there before."""
        with _opened(partial) as stream:
            kept = _size(stream)
            if kept > file.size:
                kept = stream.truncate(0)
            if file.size - kept > shutil.disk_usage(partial.parent).free:
                raise OSError(errno.ENOSPC, f"{file.size - kept} bytes are still to come")
            tried = set[str]()
            while True:
                gave = await self._gather(file, stream, holders, tried)
                if _size(stream) < file.size:
                    return kept
                self._say({"event": "checking", "path": file.path})
                fault = await asyncio.to_thread(fault_of, partial, file.size, file.sha256)
                if fault is None:
                    return None
                for name in gave:
                    self._lenders.failed(name, f"what it sends {fault}")
                if not gave:  # what was there before is wrong
                    kept = 0
                stream.truncate(kept)
                tried |= gave
                if await holders.next(tried) is None or not file.size:
                    return kept

    async def _gather(self, file: Wanted, stream: BinaryIO, holders: Holders, tried: set[str]) -> set[str]:
        """Append what is missing, of one node after the other; return who gave. Who cannot go on is among `tried`."""
        gave = set[str]()
        while (begun := _size(stream)) < file.size and (name := await holders.next(tried)) is not None:
            if not await self._copied(name, file, stream):
                tried.add(name)
            if _size(stream) > begun:
                gave.add(name)
        return gave

    async def _copied(self, name: str, file: Wanted, stream: BinaryIO) -> bool:
        """Append what is missing of a file; return whether all of it came."""
        busy = 0

        def take(piece: bytes) -> None:
            self._comes_from(name)
            _write(stream, piece)
            self._progress(file, _size(stream))

        while (begun := _size(stream)) < file.size:
            part = Range(begun, min(begun + self._job.part, file.size) - 1, file.size)
            try:
                await self._lenders.part(name, file.sha256, part, take)
                busy = 0
            except Busy as error:
                busy += 1
                if busy > _MOST_BUSY:
                    return False
                await asyncio.sleep(error.seconds)
            except (PeerUnreachable, Faulty, TimeoutError) as error:
                self._lenders.failed(name, str(error) or "it is slow")
                return False
        return True

    def _progress(self, file: Wanted, done: int) -> None:
        now = time.monotonic()
        if now - self._told_at >= _REPORT_S or done == file.size:
            self._told_at = now
            self._say({"event": "progress", "path": file.path, "done": done, "total": file.size})

    def _comes_from(self, name: str) -> None:
        if self._from != name:
            self._from = name
            self._say({"event": "source", "from": f"node {name}"})

    def _failed(self, name: str, why: str) -> None:
        self._say({"event": "failed", "node": name, "message": why[:300]})

    def _link(self, file: Wanted, blob: Path) -> None:
        """Give a content its name in the snapshot, as the hub's client does; where it cannot be, that does it."""
        place = folder_in(self._cache, self._job.repo) / "snapshots" / self._job.commit / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            os.symlink(os.path.relpath(blob, place.parent), place)


def _opened(partial: Path) -> BinaryIO:
    """Open a file to add to it."""
    return cast(BinaryIO, open(partial, "ab", buffering=0, opener=no_link))


def _size(stream: BinaryIO) -> int:
    return os.fstat(stream.fileno()).st_size


def _write(stream: BinaryIO, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[stream.write(view) :]


if __name__ == "__main__":
    sys.exit(main())
