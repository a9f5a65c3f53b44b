"""The process that gets files of models from other nodes, before the hub is asked: it can be ended at any moment.

It has the key of this node and no token of the hub; the process that talks to the hub has the token and no key. Nothing
that a node says is believed: its bytes go into the file that the hub's would go to, and count once the size and the
SHA-256 are those that the hub has told. A job is one JSON line on stdin, `Job`; what happens is JSON lines on stdout:

    {"event": "source", "from": "node NAME"}, {"event": "progress", "path", "done", "total"},
    {"event": "checking", "path"}, {"event": "done", "path"},
    {"event": "failed", "node", "path", "message"}: this node is not asked again, where the job goes on
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec

from supervisor.cluster.kept import dialling
from supervisor.cluster.peerclient import PeerClient
from supervisor.cluster.peerresponse import PeerResponse, PeerUnreachable
from supervisor.core.cluster.messages import Host, NodeName, Port
from supervisor.core.cluster.ranges import Range, range_told
from supervisor.core.repository.forms import is_commit, is_plain_path, is_repository, is_sha256, is_size
from supervisor.hub.locked import fault_of, folder_in, locked, no_link
from supervisor.hub.partials import partial_of

_ASK_S: Final = 3.0  # in which nodes have to say whether they have a file
_PART: Final = 64 << 20  # bytes of one request: the places of a node are shared between those
_KEPT_UP: Final = 1 << 20  # bytes that have to come in the time of the job's patience
_MOST_BUSY: Final = 5
_LONGEST_PAUSE_S: Final = 5.0
_REPORT_S: Final = 0.1
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Lender(msgspec.Struct, frozen=True):
    """A node that is asked."""

    name: NodeName
    host: Host
    port: Port


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
        patience: seconds in which an answer's head has to come, and then each MiB of its body.
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


class Faulty(Exception):
    """A node's answer is not what was asked for."""


class Busy(Exception):
    """A node sends as many files as it may. seconds: after which it is worth another try."""

    def __init__(self, seconds: float) -> None:
        super().__init__("it is busy")
        self.seconds = seconds


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
        self._clients = {one.name: PeerClient(one.host, one.port, context) for one in job.nodes}
        self._from = ""

    async def work(self) -> None:
        """Get all that there is of the files that are wanted."""
        if not (is_repository(self._job.repo) and is_commit(self._job.commit)):
            return
        for file in self._job.files:
            if is_plain_path(file.path) and is_sha256(file.sha256) and is_size(file.size):
                await self._get(file)

    async def _get(self, file: Wanted) -> None:
        lenders = await self._holders(file)
        if not lenders:
            return
        blobs = folder_in(self._cache, self._job.repo) / "blobs"
        blob, partial = blobs / file.sha256, partial_of(blobs, file.sha256)
        with locked(self._cache, self._job.repo, file.sha256):
            if not blob.exists():
                blobs.mkdir(parents=True, exist_ok=True)
                kept = await self._arrive(file, partial, lenders)
                if kept is not None:
                    self._say({"event": "left", "path": file.path, "kept": kept})
                    return
                partial.replace(blob)
            self._link(file, blob)
        self._say({"event": "done", "path": file.path})

    async def _arrive(self, file: Wanted, partial: Path, lenders: Sequence[str]) -> int | None:
        """Return None once a file has arrived and is right; else how much of what is there was there before."""
        with _opened(partial) as stream:
            kept = _size(stream)
            if kept > file.size:
                kept = stream.truncate(0)
            if file.size - kept > shutil.disk_usage(partial.parent).free:
                raise OSError(errno.ENOSPC, f"{file.size - kept} bytes are still to come")
            left = list(lenders)
            while True:
                gave = await self._gather(file, stream, left)
                if _size(stream) < file.size:
                    return kept
                self._say({"event": "checking", "path": file.path})
                fault = fault_of(partial, file.size, file.sha256)
                if fault is None:
                    return None
                for name in gave:
                    self._failed(name, file, f"what it sends {fault}")
                if not gave:  # what was there before is wrong
                    kept = 0
                stream.truncate(kept)
                left = [name for name in left if name not in gave]
                if not left or not file.size:
                    return kept

    async def _gather(self, file: Wanted, stream: BinaryIO, left: list[str]) -> set[str]:
        """Append what is missing, of one node after the other; return who gave. Who cannot go on is `left` no more."""
        gave = set[str]()
        while left and (begun := _size(stream)) < file.size:
            name = left[0]
            if not await self._copied(name, file, stream):
                left.remove(name)
            if _size(stream) > begun:
                gave.add(name)
        return gave

    async def _holders(self, file: Wanted) -> list[str]:
        """Return the nodes that have a file, those that answered first in front."""
        found: list[str] = []

        async def ask(name: str) -> None:
            client = self._clients[name]
            try:
                async with client.send("HEAD", f"/cluster/blobs/{file.sha256}", [], b"", safe=True) as answer:
                    if (
                        answer.status == 200
                        and _is(answer, file)
                        and _header(answer, b"content-length") == str(file.size)
                    ):
                        found.append(name)
            except PeerUnreachable as error:
                self._failed(name, file, str(error))

        asking = [asyncio.ensure_future(ask(name)) for name in self._clients]
        if asking:
            _, late = await asyncio.wait(asking, timeout=_ASK_S)
            for one in late:
                one.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return found

    async def _copied(self, name: str, file: Wanted, stream: BinaryIO) -> bool:
        """Append what is missing of a file; return whether all of it came."""
        busy = 0
        while (begun := _size(stream)) < file.size:
            part = Range(begun, min(begun + _PART, file.size) - 1, file.size)
            try:
                await self._part(name, file, part, stream)
                busy = 0
            except Busy as error:
                busy += 1
                if busy > _MOST_BUSY:
                    return False
                await asyncio.sleep(error.seconds)
            except (PeerUnreachable, Faulty, TimeoutError) as error:
                self._failed(name, file, str(error) or "it is slow")
                return False
        return True

    async def _part(self, name: str, file: Wanted, part: Range, stream: BinaryIO) -> None:
        """Append one range of a file. Raises PeerUnreachable, Faulty, Busy, TimeoutError, OSError."""
        client, loop = self._clients[name], asyncio.get_running_loop()
        left, since, told_at = part.length, 0, 0.0
        headers = [("range", part.asked())]

        def take(piece: bytes) -> bool:
            nonlocal left, since, told_at
            if len(piece) > left:
                raise Faulty(f"it sends more than the {part.length} bytes that were asked for")
            _write(stream, piece)
            left -= len(piece)
            since += len(piece)
            if since >= _KEPT_UP:
                since = 0
                limit.reschedule(loop.time() + self._job.patience)
            if (now := time.monotonic()) - told_at >= _REPORT_S or not left:
                told_at = now
                done = part.first + part.length - left
                self._say({"event": "progress", "path": file.path, "done": done, "total": file.size})
            return True

        target = f"/cluster/blobs/{file.sha256}"
        async with asyncio.timeout(self._job.patience) as limit, client.send("GET", target, headers, b"") as answer:
            _check(answer, file, part)
            self._comes_from(name)
            limit.reschedule(loop.time() + self._job.patience)
            await answer.pipe(take)
        if left:
            raise Faulty(f"its answer has {part.length - left} bytes, not {part.length}")

    def _comes_from(self, name: str) -> None:
        if self._from != name:
            self._from = name
            self._say({"event": "source", "from": f"node {name}"})

    def _failed(self, name: str, file: Wanted, why: str) -> None:
        """Ask a node no more."""
        if self._clients.pop(name, None) is not None:
            self._say({"event": "failed", "node": name, "path": file.path, "message": why[:300]})

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


def _check(answer: PeerResponse, file: Wanted, part: Range) -> None:
    """Raise Faulty or Busy for an answer that is not this range of this file."""
    if answer.status == 503:
        said = _header(answer, b"retry-after")
        raise Busy(min(float(said), _LONGEST_PAUSE_S) if said.isascii() and said.isdecimal() else 1.0)
    if answer.status != 206:
        raise Faulty(f"it answers {answer.status}")
    told = _header(answer, b"content-range")
    if range_told(told) != part or not _is(answer, file):
        raise Faulty(f"it answers with {told[:80]!a} where {part.told()!r} was asked for")


def _is(answer: PeerResponse, file: Wanted) -> bool:
    return _header(answer, b"etag") == f'"{file.sha256}"'


def _header(answer: PeerResponse, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in answer.headers if key == name), "")


if __name__ == "__main__":
    sys.exit(main())
